"""Agent sessions: chats and agents with tools, whose every turn is durable. `Runtime` is the way in."""
