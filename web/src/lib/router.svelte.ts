// Addresses: which page is shown, and the part of its state that belongs into a link.

import { ROOT } from "./root";

function current(): URL {
  return new URL(location.href);
}

class Router {
  url = $state.raw(current());

  constructor() {
    window.addEventListener("popstate", () => (this.url = current()));
    document.addEventListener("click", (event) => this.follow(event));
  }

  /** The path below the root, in parts: `["s", "chat-1"]`. */
  get parts(): string[] {
    const path = this.url.pathname.slice(ROOT.length);
    return path.split("/").filter(Boolean).map(decoded);
  }

  get query(): URLSearchParams {
    return this.url.searchParams;
  }

  go(path: string, options: { replace?: boolean } = {}): void {
    const target = new URL(ROOT + path, location.href);
    if (target.href !== location.href) {
      if (options.replace === true) history.replaceState(null, "", target);
      else history.pushState(null, "", target);
    }
    const isOtherPage = target.pathname !== this.url.pathname;
    this.url = target;
    if (isOtherPage) document.querySelector("main")?.scrollTo(0, 0);
  }

  /** Change parts of the query and keep the page. An empty value is left out of the address. */
  set(changes: Record<string, string | string[] | null>, options: { push?: boolean } = {}): void {
    const target = new URL(this.url);
    for (const [name, value] of Object.entries(changes)) {
      target.searchParams.delete(name);
      for (const each of Array.isArray(value) ? value : [value]) {
        if (each !== null && each !== "") target.searchParams.append(name, each);
      }
    }
    this.replaceUrl(target, options.push === true);
  }

  setHash(hash: string): void {
    const target = new URL(this.url);
    target.hash = hash;
    this.replaceUrl(target, false);
  }

  private replaceUrl(target: URL, push: boolean): void {
    if (target.href === this.url.href) return;
    if (push) history.pushState(null, "", target);
    else history.replaceState(null, "", target);
    this.url = target;
  }

  private follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || link.target !== "" || link.hasAttribute("download")) return;
    const target = new URL(link.href);
    if (target.origin !== location.origin || !target.pathname.startsWith(`${ROOT}/`)) return;
    if (target.pathname.startsWith(`${ROOT}/api/`)) return;
    if (target.pathname === location.pathname && target.search === location.search && target.hash !== "") return;
    event.preventDefault();
    this.go(target.pathname.slice(ROOT.length) + target.search + target.hash);
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const router = new Router();

/** The address of a page, for a link. */
export const to = (strings: TemplateStringsArray, ...names: string[]): string =>
  ROOT + strings.reduce((path, part, i) => path + encodeURIComponent(names[i - 1] ?? "") + part);

export const sessionPath = (id: string, tab = ""): string => `/s/${encodeURIComponent(id)}${tab === "" ? "" : `?tab=${tab}`}`;
