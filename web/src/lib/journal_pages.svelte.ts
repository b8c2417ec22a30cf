// The journal of a session in the browser: pages in both directions around where somebody looks, and what is added.

import { at, get } from "./api";
import { problemOf, type Problem } from "./problem";
import type { Entry, JournalPage } from "./types";

const PAGE = 1_000;
const MOST = 20_000;

export class JournalPages {
  entries = $state.raw<Entry[]>([]);
  problem = $state.raw<Problem | null>(null);
  isLoading = $state(false);
  isLoaded = $state(false);
  last = $state(0);

  constructor(private readonly id: string) {}

  get first(): number {
    return this.entries[0]?.position ?? 1;
  }

  get end(): number {
    return this.entries[this.entries.length - 1]?.position ?? 0;
  }

  get hasEarlier(): boolean {
    return this.first > 1;
  }

  get hasLater(): boolean {
    return this.end < this.last;
  }

  /** The end of the journal, or the page around a position. */
  async begin(position: number | null): Promise<void> {
    const wanted = position === null ? { before: Number.MAX_SAFE_INTEGER } : { after: Math.max(0, position - PAGE / 2) };
    await this.read(wanted, (page) => (this.entries = page.data));
    this.isLoaded = true;
  }

  earlier(): Promise<void> {
    return this.read({ before: this.first }, (page) => (this.entries = [...page.data, ...this.entries].slice(0, MOST)));
  }

  later(): Promise<void> {
    return this.read({ after: this.end }, (page) => {
      const fresh = page.data.filter((entry) => entry.position > this.end);
      this.entries = [...this.entries, ...fresh].slice(-MOST);
    });
  }

  private async read(where: { before?: number; after?: number }, take: (page: JournalPage) => void): Promise<void> {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const page = await get<JournalPage>(at`/sessions/${this.id}/journal`, { ...where, limit: PAGE });
      this.last = Math.max(this.last, page.position);
      take(page);
      this.problem = null;
    } catch (error) {
      this.problem = problemOf(error);
    } finally {
      this.isLoading = false;
    }
  }
}
