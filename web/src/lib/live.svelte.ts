// Changes of all sessions. A browser opens six connections to a host, so one tab holds the stream and tells the others.

import { auth } from "./auth.svelte";
import { EventStream, type StreamState } from "./event_stream";
import type { SessionRow } from "./types";

export type Change =
  | ({ type: "session" } & SessionRow)
  | { type: "many" }
  | { type: "deleted"; session_id: string }
  | { type: "questions"; asks: number }
  | { type: "bye" | "error" };

type Told = { change: Change } | { state: StreamState } | { ask: true };

class Live {
  state = $state.raw<StreamState>({ is: "connecting" });
  /** When something was heard last. */
  asOf = $state(Date.now());
  asks = $state<number | null>(null);
  private listeners = new Set<(change: Change) => void>();
  private stream: EventStream<Change> | null = null;
  private channel: BroadcastChannel | null = null;
  private release: (() => void) | null = null;

  /** Begin to follow, as the tab that holds the stream or as one that is told. */
  begin(): void {
    this.end();
    const name = `holdfast-events-${auth.group}`;
    const channel = (this.channel = new BroadcastChannel(name));
    channel.onmessage = (message: MessageEvent<Told>) => this.hear(message.data);
    channel.postMessage({ ask: true } satisfies Told);
    void navigator.locks.request(name, () => {
      if (this.channel !== channel) return undefined;
      this.hold();
      return new Promise<void>((release) => (this.release = release));
    });
  }

  end(): void {
    this.stream?.close();
    this.stream = null;
    this.release?.();
    this.release = null;
    this.channel?.close();
    this.channel = null;
  }

  retry(): void {
    this.stream?.retry();
  }

  listen(listener: (change: Change) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private hold(): void {
    this.stream = new EventStream<Change>("/events", {}, null, (change) => this.tell({ change }), (state) => this.tell({ state }));
    this.stream.open();
  }

  private tell(told: Told): void {
    this.channel?.postMessage(told);
    this.hear(told);
  }

  private hear(told: Told): void {
    if ("ask" in told) {
      if (this.stream !== null) this.channel?.postMessage({ state: $state.snapshot(this.state) } satisfies Told);
    } else if ("state" in told) {
      const wasAway = this.state.is !== "live";
      this.state = told.state;
      if (told.state.is === "live") {
        this.asOf = Date.now();
        if (wasAway) this.notify({ type: "many" }); // what changed meanwhile was not told
      }
    } else {
      this.asOf = Date.now();
      if (told.change.type === "questions") this.asks = told.change.asks;
      this.notify(told.change);
    }
  }

  private notify(change: Change): void {
    for (const listener of this.listeners) listener(change);
  }
}

export const live = new Live();
