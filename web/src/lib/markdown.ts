// Markdown as a tree of elements that are known to be harmless. No HTML text is made, so none can be smuggled in.

import MarkdownIt from "markdown-it";

export type Inline = string | Element;

export interface Element {
  tag: Tag;
  children: Inline[];
  href?: string;
  host?: string;
  language?: string;
  start?: number;
  align?: string;
}

const TAGS = [
  "p", "heading", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "s", "a", "hr", "br",
  "table", "thead", "tbody", "tr", "th", "td",
] as const;
export type Tag = (typeof TAGS)[number];

const parser = new MarkdownIt({ html: false, linkify: false, typographer: false }).disable("image");

const LONGEST = 200_000; // characters; more is shown as plain text: a page must not freeze

type Token = ReturnType<typeof parser.parse>[number];

/** The tree of a text, or null if it is too long to be read as markdown. */
export function markdownTree(text: string): Inline[] | null {
  if (text.length > LONGEST) return null;
  const root: Element = { tag: "p", children: [] };
  build(parser.parse(text, {}), root);
  return root.children;
}

function build(tokens: Token[], root: Element): void {
  const open: Element[] = [root];
  const top = (): Element => open[open.length - 1] ?? root;
  for (const token of tokens) {
    if (token.nesting === 1) {
      const element = opened(token);
      if (element === null || token.hidden) {
        open.push(top()); // its content belongs to what is around it
      } else {
        top().children.push(element);
        open.push(element);
      }
    } else if (token.nesting === -1) {
      open.pop();
    } else if (token.type === "inline") {
      build(token.children ?? [], top());
    } else {
      top().children.push(single(token));
    }
  }
}

function opened(token: Token): Element | null {
  if (/^h[1-6]$/.test(token.tag)) return { tag: "heading", children: [] };
  const tag = TAGS.find((each) => each === token.tag);
  if (tag === undefined) return null;
  if (tag === "a") return link(String(token.attrGet("href") ?? ""));
  const element: Element = { tag, children: [] };
  if (tag === "ol") element.start = Number(token.attrGet("start") ?? 1);
  const align = /text-align:(left|right|center)/.exec(String(token.attrGet("style") ?? ""));
  if (align?.[1] !== undefined) element.align = align[1];
  return element;
}

function single(token: Token): Inline {
  switch (token.type) {
    case "text":
      return token.content;
    case "softbreak":
      return "\n";
    case "hardbreak":
      return { tag: "br", children: [] };
    case "hr":
      return { tag: "hr", children: [] };
    case "code_inline":
      return { tag: "code", children: [token.content] };
    case "fence":
    case "code_block":
      return { tag: "pre", children: [token.content], language: token.info.trim().split(/\s/)[0] ?? "" };
    default:
      return token.content;
  }
}

/** A link to elsewhere, with its host beside it. Anything but http, https and mailto stays text. */
function link(href: string): Element | null {
  if (!/^(https?:\/\/|mailto:)/i.test(href)) return null;
  try {
    const url = new URL(href);
    return { tag: "a", children: [], href: url.href, host: url.protocol === "mailto:" ? "mail" : url.host };
  } catch {
    return null;
  }
}

/** The text of a markdown source, without its marks: for lines that preview it. */
export function plainText(text: string, most: number): string {
  const tree = markdownTree(text.slice(0, most * 4));
  const read = (node: Inline): string => (typeof node === "string" ? node : `${node.children.map(read).join("")}${/^(p|pre|li|heading|td|th|br)$/.test(node.tag) ? " " : ""}`);
  return (tree ?? [text]).map(read).join("").replace(/\s+/g, " ").trim().slice(0, most);
}
