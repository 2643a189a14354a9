// The sign-in page: one field for the API key, and a note on the other ways to sign in.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Command, Field, Problem, textFrom } from "./parts.tsx";
import { messageOf, signed, signIn } from "./session.ts";

/** Where the key of a master or an indexer comes from; empty on a node and a gateway. */
const keySource = document.querySelector<HTMLMetaElement>('meta[name="svc-key"]')?.content ?? "";
const isLoopback = (name: string) => name === "localhost" || name.endsWith(".localhost") || name === "[::1]" || /^127\./.test(name);

export function SignIn(): JSX.Element {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState(signed.value.state === "out" ? signed.value.why : "");
  const [isBusy, setBusy] = useState(false);
  const isExposed = location.protocol === "http:" && !isLoopback(location.hostname);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    await signIn({ key: key.trim() }).catch((error: unknown) => setProblem(messageOf(error)));
    setBusy(false);
  };
  return (
    <main class="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <h1>svc console</h1>
        {isExposed ? (
          <p class="warning" role="note">
            This connection is not encrypted: anybody on the network between here and {location.host} can read the key. Use HTTPS, or an SSH tunnel to the
            machine.
          </p>
        ) : null}
        <Field label="API key">
          <input type="password" autocomplete="off" required autofocus value={key} onInput={(event) => setKey(textFrom(event))} />
        </Field>
        <Problem error={problem} />
        <button type="submit" class="primary" disabled={isBusy}>
          Sign in
        </button>
        {keySource === "" ? (
          <>
            <p class="muted">On the server's machine this opens the console signed in:</p>
            <Command text="./svc console" />
          </>
        ) : (
          <p class="muted">
            The key of this server is in <code>{keySource}</code>.
          </p>
        )}
      </form>
    </main>
  );
}
