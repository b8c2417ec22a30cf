// The time by the server's clock, once a second: what is told as "4 min ago" follows it.

class Clock {
  now = $state(Date.now());
  private offset = 0;

  constructor() {
    setInterval(() => (this.now = Date.now() + this.offset), 1_000);
  }

  /** Set the clock by the server's: machines differ, and ages must not be negative. */
  setBy(serverNow: number): void {
    this.offset = serverNow - Date.now();
    this.now = serverNow;
  }

  read(): number {
    return Date.now() + this.offset;
  }
}

export const clock = new Clock();
