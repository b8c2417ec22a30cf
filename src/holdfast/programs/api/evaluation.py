"""The table of `alc.eval`: scenarios, and reports on how a strategy did on them."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, GroupSpec, NoSpelling, ResultSpec, ShapeSpec, may, need

EVAL = GroupSpec(
    "Evaluation",
    "How well a strategy does on cases whose answers are known. Graders by name: `exact_match`, `contains`,"
    " `starts_with`, `ends_with`, `flexible_match`, `regex`, `not_empty`, `json_valid`, `valid_json_response`,"
    " `length`, `latency`, `numeric`, `approx`; and, by asking a model, `llm_rubric`, `llm_yes_no`, `llm_factuality`."
    " Scorers by name: `bool`, `linear_1_5`, `linear_1_10`, `linear_0_100`, `pass_50`, `pass_80`, `inverse_linear`,"
    " `band_1_5`.",
    functions=(
        FunctionSpec(
            "eval",
            "Run a strategy on every case, one after the other, grade its answers, and report. An error in a case fails"
            " that case only; a spent budget ends the evaluation, and the report says what was not run. Scenarios made"
            " with the package evalframe work as well as plain tables.",
            (
                need(
                    "scenario",
                    "Scenario|string",
                    "The cases; or the name of a package or a file in the scenarios directory.",
                ),
                need(
                    "strategy",
                    "string|fun(ctx: table): any",
                    "A package with `run(ctx)`, a strategy in another language, or a function.",
                ),
                may("opts", "EvalOptions", "More for the strategy, and whether to keep a card."),
            ),
            (ResultSpec("EvalReport"),),
            Example(
                'alc.eval({cases = {{input = "2+2?", expected = "4"}}}, function(ctx) return alc.llm(ctx.task) end)'
            ),
            waits="host",
            python=NoSpelling("`child` with a Lua package that evaluates"),
        ),
    ),
    shapes=(
        ShapeSpec(
            "Scenario",
            "Cases, and how to grade. Bindings may stand in the list part instead of `graders`.",
            (
                need("cases", "EvalCase[]", "At least one."),
                may(
                    "graders",
                    "(string|function|table)[]",
                    "Names, functions of a response and its case, or `{grader, scorer, weight = …}`; `exact_match` if"
                    " absent.",
                ),
                may("name", "string", "What to call it."),
                may("provider", "fun(input: string): string|table", "What answers, in place of the strategy."),
            ),
        ),
        ShapeSpec(
            "EvalCase",
            "A question whose answer is known.",
            (
                need("input", "string", "The question: `ctx.task` of the strategy."),
                may("expected", "string|string[]", "The answer, or each that will do."),
                may("name", "string", "What to call it."),
                may("context", "table", "More for graders."),
                may("tags", "string[]", "What to count it under."),
                may("rubric", "string", "What a judge should look at."),
            ),
        ),
        ShapeSpec(
            "EvalOptions",
            "How to evaluate.",
            (
                may("strategy_opts", "table", "More for the ctx of every case."),
                may("auto_card", "boolean", "Keep the figures as a card, and the results as its samples."),
                may("card_pkg", "string", "The card's package; the strategy's name if absent."),
                may("scenario_name", "string", "What to call a scenario that is a table without a name."),
            ),
        ),
        ShapeSpec(
            "EvalReport",
            "How a strategy did.",
            (
                need("name", "string", "`strategy:scenario`."),
                need("aggregated", "EvalFigures", "The figures."),
                need("results", "EvalResult[]", "Every case."),
                need("failures", "EvalResult[]", "Those that did not pass."),
                need("summary", "string", "In words."),
                may("card_id", "string", "The card that was kept."),
                may("card_error", "string", "Why none was."),
                may("stopped", "string", "Why it ended early."),
                may("not_run", "EvalCase[]", "Cases that were not run."),
            ),
        ),
        ShapeSpec(
            "EvalFigures",
            "The figures of an evaluation.",
            (
                need("total", "integer", "Cases that ran."),
                need("passed", "integer", "Cases that passed."),
                need("pass_rate", "number", "The share of those."),
                need("pass_at_1", "number", "Chance that one result drawn passes."),
                may("pass_at_5", "number", "That one of five does; from five cases on."),
                may("pass_at_10", "number", "That one of ten does; from ten cases on."),
                need("scores", "EvalScores", "The scores."),
                need("ci_95", "Interval", "Where the mean score is, with 95 %."),
                need("by_tag", "table<string, EvalTag>", "The same by tag."),
            ),
        ),
        ShapeSpec(
            "EvalScores",
            "A list of scores in short.",
            (
                need("n", "integer", "How many."),
                need("mean", "number", "Their mean."),
                need("std_dev", "number", "Their standard deviation."),
                need("min", "number", "The least."),
                need("max", "number", "The greatest."),
                need("median", "number", "The one in the middle."),
            ),
        ),
        ShapeSpec(
            "Interval", "From where to where.", (need("lower", "number", "From."), need("upper", "number", "To."))
        ),
        ShapeSpec(
            "EvalTag",
            "The cases under one tag.",
            (
                need("pass", "integer", "Passed."),
                need("fail", "integer", "Not passed."),
                need("rate", "number", "The share that passed."),
                need("stats", "EvalScores", "Their scores."),
            ),
        ),
        ShapeSpec(
            "EvalResult",
            "The result of one case.",
            (
                need("case", "EvalCase", "The case."),
                need("response", "EvalResponse", "What was said."),
                need("grades", "EvalGrade[]", "What each grader found."),
                need("score", "number", "Their weighted mean, 0 to 1."),
                need("passed", "boolean", "Whether the score is 1."),
            ),
        ),
        ShapeSpec(
            "EvalResponse",
            "What a strategy said.",
            (
                need("text", "string", "The answer."),
                need("latency_ms", "number", "How long it took, waiting included."),
                may("error", "string", "Why there is none."),
                may("model", "string", "Who said it, if the provider tells."),
            ),
        ),
        ShapeSpec(
            "EvalGrade",
            "What a grader found.",
            (
                need("grader", "string", "Its name."),
                need("weight", "number", "How much it counts."),
                need("score", "number", "0 to 1."),
                may("grade", "any", "What it said before scoring."),
                may("error", "string", "Why it said nothing."),
                may("warning", "string", "What is odd about it."),
            ),
        ),
    ),
)
