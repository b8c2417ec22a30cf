// A list of sessions that is read page by page, as far as somebody scrolls. Pages that are far away are let go, and
// read again by their cursors: 100,000 sessions take no more memory than the rows around those that are shown.

import { get, type Params } from "./api";
import { problemOf, type Problem } from "./problem";
import type { SessionRow, SessionsPage } from "./types";

const PAGE_ROWS = 100;
const MOST_PAGES = 20;

interface ListPage {
  cursor: string | null;
  rows: SessionRow[] | null;
  length: number;
  next: string | null;
}

export class SessionList {
  problem = $state.raw<Problem | null>(null);
  isLoading = $state(false);
  damaged = $state.raw<string[]>([]);
  loadedAt = $state(0);
  /** How many rows are known. */
  length = $state(0);
  hasMore = $state(false);
  /** Changes with each change of the rows; whoever reads rows depends on it. */
  version = $state(0);
  private pages: ListPage[] = [];
  private reading = new Set<string>();
  private params: Params = {};
  private round = 0;

  async begin(params: Params): Promise<void> {
    this.round += 1;
    this.params = params;
    this.reading.clear();
    await this.read(null, 0, true);
  }

  row(index: number): SessionRow | null {
    void this.version;
    const [page, offset] = this.find(index);
    return page?.rows?.[offset] ?? null;
  }

  /** Read what is missing of the rows that are shown, and the next page if its beginning is near. */
  show(first: number, last: number): void {
    let start = 0;
    this.pages.forEach((page, number) => {
      const isNear = start + page.length >= first - PAGE_ROWS && start <= last + PAGE_ROWS;
      if (isNear && page.rows === null) void this.read(page.cursor, number, false);
      start += page.length;
    });
    if (last + PAGE_ROWS / 2 >= this.length && this.hasMore) this.more();
    this.letGo(first);
  }

  /** Replace a row where it is known. Its place stays: nothing moves under a pointer. */
  patch(row: SessionRow): boolean {
    for (const page of this.pages) {
      const index = page.rows?.findIndex((each) => each.session_id === row.session_id) ?? -1;
      if (page.rows !== null && index >= 0) {
        if ((page.rows[index]?.position ?? 0) <= row.position) {
          page.rows = page.rows.with(index, row);
          this.version += 1;
        }
        return true;
      }
    }
    return false;
  }

  /** Put a new session at the top. */
  prepend(row: SessionRow): void {
    const first = this.pages[0];
    if (first?.rows === null || first === undefined) return;
    first.rows = [row, ...first.rows];
    this.measure();
  }

  forget(sessionId: string): void {
    for (const page of this.pages) {
      if (page.rows?.some((row) => row.session_id === sessionId)) page.rows = page.rows.filter((row) => row.session_id !== sessionId);
    }
    this.measure();
  }

  indexOf(sessionId: string): number {
    let start = 0;
    for (const page of this.pages) {
      const index = page.rows?.findIndex((row) => row.session_id === sessionId) ?? -1;
      if (index >= 0) return start + index;
      start += page.length;
    }
    return -1;
  }

  private more(): void {
    const last = this.pages[this.pages.length - 1];
    if (last?.next != null) void this.read(last.next, this.pages.length, false);
  }

  private async read(cursor: string | null, number: number, anew: boolean): Promise<void> {
    const name = cursor ?? "first";
    if (this.reading.has(name)) return;
    this.reading.add(name);
    const round = this.round;
    this.isLoading = true;
    try {
      const found = await get<SessionsPage>("/sessions", { ...this.params, limit: PAGE_ROWS, after: cursor });
      if (round !== this.round) return;
      const page = { cursor, rows: found.data, length: found.data.length, next: found.next };
      this.pages = anew ? [page] : this.pages.toSpliced(number, 1, page);
      if (anew) this.damaged = found.damaged ?? [];
      this.problem = null;
      this.loadedAt = Date.now();
      this.measure();
    } catch (error) {
      if (round !== this.round) return;
      const problem = problemOf(error);
      if (problem.kind === "invalid_cursor" && !anew) void this.begin(this.params);
      else this.problem = problem;
    } finally {
      this.reading.delete(name);
      if (round === this.round) this.isLoading = this.reading.size > 0;
    }
  }

  private measure(): void {
    let length = 0;
    for (const page of this.pages) {
      if (page.rows !== null) page.length = page.rows.length;
      length += page.length;
    }
    this.length = length;
    this.hasMore = this.pages[this.pages.length - 1]?.next != null;
    this.version += 1;
  }

  private find(index: number): [ListPage | undefined, number] {
    let start = 0;
    for (const page of this.pages) {
      if (index < start + page.length) return [page, index - start];
      start += page.length;
    }
    return [undefined, 0];
  }

  private letGo(first: number): void {
    const held = this.pages.filter((page) => page.rows !== null).length;
    if (held <= MOST_PAGES) return;
    const near = Math.floor(first / PAGE_ROWS);
    const farthest = this.pages
      .map((page, number) => ({ page, away: page.rows === null ? -1 : Math.abs(number - near) }))
      .sort((a, b) => b.away - a.away)[0];
    if (farthest !== undefined && farthest.away > 2) farthest.page.rows = null;
  }
}
