// The ports of a sandbox's applications: a link for each port that the person enters, and a preview in a frame with its own origin.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Copy, Field, Scroll, textFrom } from "../parts.tsx";
import { query, setQuery } from "../router.ts";
import { signed } from "../session.ts";
import type { TabProps } from "./sandbox.tsx";

const common = [3000, 5000, 5173, 8000, 8080, 8888];

export function Ports({ row, detail }: TabProps): JSX.Element {
  const [port, setPort] = useState(query.value.get("port") ?? "");
  const [shown, setShown] = useState("");
  const { value } = signed;
  const domain = value.state === "in" ? value.session.domain : "localhost";
  const isPrivate = detail?.network?.allowPublicTraffic === false;
  // The address of this page may name anything, so only a port becomes a link.
  const isPort = /^[1-9]\d{0,4}$/.test(port) && Number(port) <= 65_535;
  const urlOf = (number: string) => `${location.protocol}//${number}-${row.id}.${domain}/`;
  return (
    <Scroll label="Ports" kind="ports">
      <div class="bar">
        <Field label="Port">
          <input
            type="number"
            min="1"
            max="65535"
            list="ports"
            value={port}
            onInput={(event) => {
              setPort(textFrom(event));
              setQuery({ port: textFrom(event) });
            }}
          />
        </Field>
        <datalist id="ports">
          {common.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
        {!isPort ? (
          <span class="muted">
            {port === "" ? "" : "Expected a number from 1 to 65535. "}Every port that an application in the sandbox listens on can be reached.
          </span>
        ) : (
          <>
            <a href={urlOf(port)} target="_blank" rel="noreferrer noopener">
              {urlOf(port)}
            </a>
            <Copy text={urlOf(port)} what="the address" />
            <button type="button" onClick={() => setShown(shown === urlOf(port) ? "" : urlOf(port))}>
              {shown === urlOf(port) ? "Hide the preview" : "Preview"}
            </button>
          </>
        )}
      </div>
      {isPrivate ? <p class="warning">This sandbox demands its traffic access token, so a browser gets no page without it.</p> : null}
      {shown === "" ? null : (
        <iframe title={`Port ${port} of ${row.id}`} src={shown} sandbox="allow-scripts allow-forms allow-same-origin" referrerpolicy="no-referrer" />
      )}
    </Scroll>
  );
}
