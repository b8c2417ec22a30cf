"""`Transcript`: a session put together from the events that a watcher has seen, with the cursor to resume from."""

from __future__ import annotations

from holdfast.agent.live_events import (
    ModelStartedEvent,
    ReasoningDeltaEvent,
    RetractedEvent,
    RetryEvent,
    TextDeltaEvent,
    ToolOutputEvent,
)
from holdfast.agent.observed_events import (
    CallSettledEvent,
    GapEvent,
    MessageEvent,
    Observation,
    ObservedEvent,
    RedrawEvent,
    TurnBeganEvent,
    TurnEndedEvent,
)
from holdfast.agent.results import ViewMessage


class Transcript:
    """Made from an observation, and updated with `see`. It stays right however often its watcher reconnects."""

    def __init__(self, observation: Observation) -> None:
        self.messages: list[ViewMessage] = []
        """The settled messages."""
        self.text = ""
        """The unsettled text of the model."""
        self.reasoning = ""
        self.outputs: dict[str, str] = {}
        """The output of running tools, by call."""
        self.running: str | None = None
        """The running turn, or None if there is none."""
        self._draw(observation)

    def see(self, seen: ObservedEvent) -> None:
        """Take in one more event."""
        self.cursor = seen.cursor
        match seen.event:
            case RedrawEvent(observation=observation) | GapEvent(observation=observation):
                self._draw(observation)
            case TurnBeganEvent(turn=turn, begins_anew=begins_anew):
                self.running = turn
                self.messages = [] if begins_anew else self.messages
            case MessageEvent(message=message):
                self.messages.append(message)
                if message.role == "assistant":
                    self.text = self.reasoning = ""
            case ModelStartedEvent() | RetractedEvent() | RetryEvent():
                self.text = self.reasoning = ""
            case TextDeltaEvent(text=text):
                self.text += text
            case ReasoningDeltaEvent(text=text):
                self.reasoning += text
            case ToolOutputEvent(call=call, text=text):
                self.outputs[call] = self.outputs.get(call, "") + text
            case CallSettledEvent(call=call):
                self.outputs.pop(call, None)
            case TurnEndedEvent():
                self.running, self.text, self.reasoning, self.outputs = None, "", "", {}
            case _:
                pass

    def _draw(self, observation: Observation) -> None:
        self.cursor = observation.cursor
        self.messages = list(observation.view.messages)
        self.running = observation.running
        said = next((draft for draft in observation.drafts if not draft.call), None)
        self.text, self.reasoning = (said.text, said.reasoning) if said is not None else ("", "")
        self.outputs = {draft.call: draft.text for draft in observation.drafts if draft.call}
