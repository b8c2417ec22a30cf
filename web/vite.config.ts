import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Chunks find each other relative to themselves, so that the console works below any path; the server writes the
// path of the document's own files (see `console_page`).
export default defineConfig({
  base: "./",
  plugins: [svelte({ compilerOptions: { runes: true } })],
  build: {
    target: "es2023",
    outDir: "../src/holdfast/serve/console/built",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
});
