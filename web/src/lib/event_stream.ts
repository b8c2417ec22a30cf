// An event stream by `fetch`: `EventSource` cannot send a token. It goes on after the last event that was seen.

import { auth } from "./auth.svelte";
import { queryOf, type Params } from "./api";
import { Problem, problemFrom } from "./problem";
import { API } from "./root";

export type StreamState =
  | { is: "connecting" }
  | { is: "live" }
  | { is: "stale" }
  | { is: "reconnecting"; at: number }
  | { is: "gone"; why: string }
  | { is: "ended" };

export interface Frame {
  id: string | null;
  type: string;
  data: string;
}

const STALE_MS = 45_000;
const HEALTHY_MS = 10_000;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 30_000;
const MOST_REFUSALS = 3;

/** Cuts what arrives into frames. A frame ends with an empty line; half of one is kept for the next piece. */
export class FrameReader {
  private rest = "";

  take(piece: string): Frame[] {
    const blocks = (this.rest + piece).split(/\r?\n\r?\n/);
    this.rest = blocks.pop() ?? "";
    return blocks.map(frameOf).filter((frame) => frame !== null);
  }
}

function frameOf(block: string): Frame | null {
  let id: string | null = null;
  let type = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") id = value;
    else if (field === "event") type = value;
    else if (field === "data") data.push(value);
  }
  return data.length === 0 ? null : { id, type, data: data.join("\n") };
}

export class EventStream<T extends { type: string }> {
  private controller: AbortController | null = null;
  private timer = 0;
  private failures = 0;
  private refusals = 0;
  private heardAt = 0;
  private isClosed = false;

  constructor(
    private readonly path: string,
    private readonly params: Params,
    private cursor: string | null,
    private readonly onEvent: (event: T) => void,
    private readonly onState: (state: StreamState) => void,
  ) {}

  open(): void {
    this.isClosed = false;
    void this.run();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.controller?.abort();
    this.controller = null;
  }

  /** Connect now, and not after the wait that is under way. */
  retry(): void {
    if (this.isClosed || this.controller !== null) return;
    clearTimeout(this.timer);
    void this.run();
  }

  private async run(): Promise<void> {
    const controller = (this.controller = new AbortController());
    this.onState({ is: "connecting" });
    let openedAt = 0;
    let isStale = false;
    const watch = setInterval(() => {
      if (Date.now() - this.heardAt <= STALE_MS) return;
      isStale = true;
      this.onState({ is: "stale" });
      controller.abort();
    }, 5_000);
    try {
      this.heardAt = Date.now();
      const response = await fetch(API + this.path + queryOf({ ...this.params, after: this.cursor }), {
        headers: { accept: "text/event-stream", ...auth.headers() },
        cache: "no-store",
        signal: controller.signal,
      });
      if (response.status === 204) return this.stop({ is: "ended" });
      if (!response.ok || response.body === null) throw await problemFrom(response);
      openedAt = Date.now();
      this.refusals = 0;
      this.onState({ is: "live" });
      await this.read(response.body);
      if (this.isClosed) return;
    } catch (error) {
      if (this.isClosed) return;
      if (error instanceof Problem && this.isFinal(error)) return this.stop({ is: "gone", why: error.detail });
      if (!isStale && error instanceof DOMException && error.name === "AbortError") return;
    } finally {
      clearInterval(watch);
      if (this.controller === controller) this.controller = null;
    }
    if (openedAt > 0 && Date.now() - openedAt > HEALTHY_MS) this.failures = 0;
    this.wait();
  }

  private async read(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
    const frames = new FrameReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      this.heardAt = Date.now();
      for (const frame of frames.take(value)) {
        if (this.isClosed) return;
        this.onEvent(JSON.parse(frame.data) as T);
        if (frame.id !== null) this.cursor = frame.id;
      }
    }
  }

  private isFinal(problem: Problem): boolean {
    if (problem.status === 401 || problem.status === 403) {
      this.refusals += 1;
      auth.refused(problem);
      return this.refusals >= MOST_REFUSALS || auth.isNeeded;
    }
    return problem.status === 404 || problem.status === 410;
  }

  private stop(state: StreamState): void {
    this.isClosed = true;
    this.onState(state);
  }

  private wait(): void {
    const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.failures);
    const wait = longest * (0.5 + Math.random() / 2);
    this.failures += 1;
    this.onState({ is: "reconnecting", at: Date.now() + wait });
    this.timer = window.setTimeout(() => void this.run(), wait);
  }
}
