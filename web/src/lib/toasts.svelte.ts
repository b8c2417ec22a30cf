// Short messages about what was just done, which leave by themselves.

export interface Toast {
  id: number;
  text: string;
  tone: "plain" | "bad";
  link?: { href: string; text: string };
}

class Toasts {
  all = $state<Toast[]>([]);
  private next = 0;

  show(text: string, options: { tone?: Toast["tone"]; link?: Toast["link"] } = {}): void {
    const toast: Toast = { id: this.next++, text, tone: options.tone ?? "plain", ...(options.link ? { link: options.link } : {}) };
    this.all = [...this.all.slice(-3), toast];
    setTimeout(() => this.dismiss(toast.id), toast.tone === "bad" ? 12_000 : 6_000);
  }

  dismiss(id: number): void {
    this.all = this.all.filter((each) => each.id !== id);
  }
}

export const toasts = new Toasts();

export async function copy(text: string, what: string): Promise<void> {
  await navigator.clipboard.writeText(text);
  toasts.show(`Copied ${what}.`);
}
