// What a person has chosen for this browser: theme, time zone, single-letter keys, the last filters, what is for later.

function read<T>(key: string, otherwise: T): T {
  try {
    const text = localStorage.getItem(`holdfast.${key}`);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
}

function write(key: string, value: unknown): void {
  try {
    localStorage.setItem(`holdfast.${key}`, JSON.stringify(value));
  } catch {
    // Without storage a choice lasts as long as the page.
  }
}

export type Theme = "system" | "light" | "dark";
export type Zone = "local" | "utc";

export interface View {
  name: string;
  query: string;
}

class Settings {
  theme = $state<Theme>(read("theme", "system"));
  zone = $state<Zone>(read("zone", "local"));
  letterKeys = $state<boolean>(read("letterKeys", true));
  views = $state<View[]>(read("views", []));
  /** Questions that this person has put aside, by session and query, and until when. */
  later = $state<Record<string, number>>(read("later", {}));

  constructor() {
    this.showTheme();
    window.addEventListener("storage", () => {
      this.theme = read("theme", "system");
      this.later = read("later", {});
      this.views = read("views", []);
      this.showTheme();
    });
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    write("theme", theme);
    this.showTheme();
  }

  setZone(zone: Zone): void {
    this.zone = zone;
    write("zone", zone);
  }

  setLetterKeys(on: boolean): void {
    this.letterKeys = on;
    write("letterKeys", on);
  }

  setViews(views: View[]): void {
    this.views = views;
    write("views", views);
  }

  putAside(key: string, until: number | null): void {
    const kept = Object.entries(this.later).filter(([each, at]) => each !== key && at > Date.now());
    this.later = Object.fromEntries(until === null ? kept : [...kept, [key, until]]);
    write("later", this.later);
  }

  lastQuery(page: string): string {
    return read(`query.${page}`, "");
  }

  keepQuery(page: string, query: string): void {
    write(`query.${page}`, query);
  }

  private showTheme(): void {
    const root = document.documentElement;
    if (this.theme === "system") delete root.dataset["theme"];
    else root.dataset["theme"] = this.theme;
  }
}

export const settings = new Settings();
