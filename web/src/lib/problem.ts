// Why a request was refused, as the API says it (RFC 9457), or why there was no answer at all.

export class Problem extends Error {
  readonly kind: string;

  constructor(
    readonly status: number,
    type: string,
    readonly detail: string,
    readonly instance: string = "",
    readonly fields: Record<string, unknown> = {},
    readonly retryAfterS: number | null = null,
  ) {
    super(detail);
    this.kind = type.replace("urn:holdfast:error:", "");
  }

  get isOffline(): boolean {
    return this.status === 0;
  }
}

export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const text = error instanceof Error ? error.message : String(error);
  return new Problem(0, "offline", text);
}

export async function problemFrom(response: Response): Promise<Problem> {
  const retryAfter = Number(response.headers.get("retry-after"));
  const wait = Number.isFinite(retryAfter) && retryAfter > 0 ? retryAfter : null;
  const requestId = response.headers.get("request-id") ?? "";
  try {
    const { type, title, status, detail, instance, ...fields } = await response.json();
    return new Problem(status ?? response.status, type ?? title ?? "unknown", detail ?? title, instance, fields, wait);
  } catch {
    return new Problem(response.status, "unknown", `the server answered ${response.status}`, requestId, {}, wait);
  }
}
