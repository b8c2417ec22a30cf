// Something that a page loads: at first nothing, then a value or a problem, and later maybe both.

import { problemOf, type Problem } from "./problem";

export class Resource<T> {
  value = $state.raw<T | null>(null);
  problem = $state.raw<Problem | null>(null);
  isLoading = $state(false);
  loadedAt = $state(0);
  private controller: AbortController | null = null;

  /** Load with a function; what an earlier call still waits for is given up. */
  async load(fetched: (signal: AbortSignal) => Promise<T>): Promise<void> {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    this.isLoading = true;
    try {
      const value = await fetched(controller.signal);
      if (controller.signal.aborted) return;
      this.value = value;
      this.problem = null;
      this.loadedAt = Date.now();
    } catch (error) {
      if (controller.signal.aborted) return;
      this.problem = problemOf(error);
    } finally {
      if (this.controller === controller) this.isLoading = false;
    }
  }

  reset(): void {
    this.controller?.abort();
    this.value = null;
    this.problem = null;
    this.isLoading = false;
  }
}
