// The token of this tab. It is in sessionStorage, which belongs to this port; a cookie would be sent to every port.

import { API } from "./root";
import { Problem, problemFrom } from "./problem";
import type { Me } from "./types";

const KEY = "holdfast.token";
const MOST_FAILURES = 3;

class Auth {
  token = $state<string | null>(sessionStorage.getItem(KEY));
  me = $state<Me | null>(null);
  /** Whether a page needs somebody to sign in first. */
  isNeeded = $state(false);
  private hasCookie = false;
  private failures = 0;

  /** What every request is sent with. */
  headers(): Record<string, string> {
    if (this.token !== null) return { authorization: `Bearer ${this.token}` };
    return this.hasCookie || location.protocol === "https:" ? { "x-holdfast": "1" } : {};
  }

  /** Names a group of tabs that may see the same: tabs with another token are told nothing. */
  get group(): string {
    return this.token?.split("_")[1] ?? (this.hasCookie ? "cookie" : "open");
  }

  /** Take a code or a token from the fragment of the address, and remove it from the address before anything else. */
  async takeFromAddress(): Promise<void> {
    const given = new URLSearchParams(location.hash.slice(1));
    const code = given.get("code");
    const token = given.get("token");
    if (code === null && token === null) return;
    history.replaceState(null, "", location.pathname + location.search);
    if (token !== null) this.keep(token);
    else await this.signIn({ code: code as string });
  }

  async signIn(given: { code: string } | { token: string }): Promise<void> {
    const response = await fetch(`${API}/login`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(given),
    });
    if (!response.ok) throw await problemFrom(response);
    const reply: { token: string | null; cookie: boolean } = await response.json();
    this.hasCookie = reply.cookie;
    if (!reply.cookie) this.keep(reply.token ?? ("token" in given ? given.token : null));
    this.failures = 0;
    this.isNeeded = false;
  }

  async signOut(): Promise<void> {
    await fetch(`${API}/logout`, { method: "POST", headers: this.headers() }).catch(() => undefined);
    this.keep(null);
    this.hasCookie = false;
    this.me = null;
    this.isNeeded = true;
  }

  may(scope: string): boolean {
    return this.me === null || this.me.scopes.includes("admin") || this.me.scopes.includes(scope);
  }

  succeeded(): void {
    this.failures = 0;
  }

  /** A request was refused for its token. After three in a row nothing more is sent until somebody signs in. */
  refused(problem: Problem): void {
    if (problem.status !== 401) return;
    this.failures += 1;
    if (this.me === null || this.failures >= MOST_FAILURES) this.isNeeded = true;
  }

  private keep(token: string | null): void {
    this.token = token;
    if (token === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, token);
  }
}

export const auth = new Auth();
