// One session as a page shows it: its status, its questions, its conversation if it is an agent's, kept up to date by
// its event stream. The stream is closed while the tab is hidden, and goes on where it was.

import { at, get } from "./api";
import { Conversation, type SessionEvent } from "./conversation.svelte";
import { EventStream, type StreamState } from "./event_stream";
import { problemOf, type Problem } from "./problem";
import { Resource } from "./resource.svelte";
import type { Observation, Page, Status, WaitingQuery } from "./types";

const HIDDEN_MS = 30_000;
const QUIET_MS = 250;
const LIVE_ONLY = new Set(["text", "reasoning", "tool_output", "model_started", "so_far", "retracted", "retrying", "redraw", "cell_printed", "cell_started", "cell_finished", "summing_up", "summed_up", "usage", "bye"]);

export class SessionModel {
  status = new Resource<Status>();
  questions = new Resource<Page<WaitingQuery>>();
  conversation = new Conversation();
  stream = $state.raw<StreamState>({ is: "connecting" });
  problem = $state.raw<Problem | null>(null);
  isReady = $state(false);
  /** The last position that is known of: it grows when something durable happens. */
  position = $state(0);
  private source: EventStream<SessionEvent> | null = null;
  private timer = 0;
  private hiddenTimer = 0;
  private isClosed = false;
  private readonly onVisibility = (): void => this.followVisibility();

  constructor(readonly id: string) {}

  get isAgent(): boolean {
    return this.status.value?.summary.program_kind === "agent";
  }

  get isOver(): boolean {
    return ["completed", "failed", "cancelled", "expired"].includes(this.status.value?.summary.state ?? "");
  }

  async open(): Promise<void> {
    document.addEventListener("visibilitychange", this.onVisibility);
    await this.refresh();
    if (this.isClosed || this.status.value === null) {
      this.problem = this.status.problem;
      return;
    }
    await this.observe();
  }

  private async observe(): Promise<void> {
    let cursor: string | null = null;
    try {
      const observation = await get<Observation>(at`/sessions/${this.id}/observation`);
      cursor = observation.cursor;
      if (this.isAgent) this.conversation.load(observation);
    } catch (error) {
      this.problem = problemOf(error);
    }
    this.isReady = true;
    if (this.isClosed || cursor === null) return;
    const view = this.isAgent ? "conversation" : "entries";
    this.source = new EventStream<SessionEvent>(at`/sessions/${this.id}/events`, { view }, cursor, (event) => this.take(event), (state) => (this.stream = state));
    this.source.open();
  }

  close(): void {
    this.isClosed = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    clearTimeout(this.timer);
    clearTimeout(this.hiddenTimer);
    this.source?.close();
  }

  async refresh(): Promise<void> {
    await Promise.all([
      this.status.load((signal) => get<Status>(at`/sessions/${this.id}`, { pending: "preview" }, signal)),
      this.questions.load((signal) => get<Page<WaitingQuery>>("/queries", { session: this.id, limit: 50 }, signal)),
    ]);
    this.position = Math.max(this.position, this.status.value?.position ?? 0);
  }

  private take(event: SessionEvent): void {
    this.conversation.apply(event);
    if (LIVE_ONLY.has(event.type)) return;
    this.position = Math.max(this.position, event.position ?? event.entry?.position ?? 0);
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.refresh(), QUIET_MS);
  }

  private followVisibility(): void {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) {
      this.hiddenTimer = window.setTimeout(() => this.source?.close(), HIDDEN_MS);
    } else if (this.source !== null && this.stream.is !== "live" && this.stream.is !== "gone" && this.stream.is !== "ended") {
      this.source.close();
      this.source.open();
    }
  }
}
