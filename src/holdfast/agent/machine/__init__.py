"""The pure part of agents: turn machine, conversation, prompts, approval, compaction, inbox rule. No I/O."""
