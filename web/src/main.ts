import "./app.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { auth } from "./lib/auth.svelte";

const target = document.getElementById("app");
if (target === null) throw new Error("the document has no place for the console");

// The token leaves the address before anything is drawn or asked for.
await auth.takeFromAddress().catch(() => (auth.isNeeded = true));
mount(App, { target });
