"""NATS JetStream as the dispatcher: a queue of the ids of sessions, which workers take them from."""
