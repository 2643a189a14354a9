// The console's entry: draws the page and begins the session.
import { render } from "preact";
import { App } from "./app.tsx";
import { begin } from "./session.ts";

const root = document.getElementById("app");
if (root !== null) render(<App />, root);
void begin();
