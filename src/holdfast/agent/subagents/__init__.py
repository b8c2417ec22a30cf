"""Subagents: agents that work one task for another agent, each in a session of its own.

The shape, for everybody who builds on it:

- `definition.AgentDefinition` is what a subagent is: name, description, instructions, tools, model, mode, limits,
  result. `files.load_agents` reads them from `agents/NAME.md`; `Runtime(agents=[…])` takes both.
- `registry.Subagents`, as `runtime.subagents`, holds those of a runtime, checked when it opens:
  `names(policy.delegation)` are the ones that a session may use, none at the depth limit.
- A program that wants a subagent asks `machine.queries.DelegateQuery(program=NAME, task=…, seed=…, output=…)`, alone or
  many in one pause. Nothing else is needed: the engine starts the child as the session `PARENT.QUERY` (so a crash
  starts none twice), reserves its share of the budget, cancels it when nobody waits any more, and answers the query.
- `machine.delegation.subagent_result(answer)` reads that answer: a `SubagentResult` with a `status` (`ok`, `failed`,
  `budget`, `timeout`, `cancelled`), the `value` or the `text`, the `error`, and the `session`. It never raises.
- `starts.SubagentStarts` resolves a definition to the policy that the child begins with.
- The child has its task as its only input, and ends with its turn. In the mode `rlm`, the seed is `ctx["seed"]` of its
  session; in the mode `standard` it is shown with the task.
- Usage rolls up in the parent's report under `subagent`, by model too.
"""
