// Shows one dialog at a time in the browser's own dialog element, which keeps the focus inside and closes on Escape.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

type Shown = {
  readonly title: string;
  readonly body: () => ComponentChildren;
  readonly isWide?: boolean;
};

const shown = signal<Shown | undefined>(undefined);

/** True while the dialog holds text that is saved nowhere; the person then confirms that it may close. */
let holdsUnsaved = false;

export function openDialog(dialog: Shown): void {
  holdsUnsaved = false;
  shown.value = dialog;
}

export function setUnsaved(isUnsaved: boolean): void {
  holdsUnsaved = isUnsaved;
}

function mayLeave(): boolean {
  return !holdsUnsaved || window.confirm("The changes of this text are not saved. Close it and lose them?");
}

export function closeDialog(): void {
  shown.value = undefined;
}

/** Reads the document instead of the state, since the element closes on Escape a moment before its event arrives. */
export const isDialogOpen = (): boolean => document.querySelector("dialog[open]") !== null;

export function Dialogs(): JSX.Element | null {
  const dialog = shown.value;
  return dialog === undefined ? null : <Dialog key={dialog.title} dialog={dialog} />;
}

function Dialog({ dialog }: { readonly dialog: Shown }): JSX.Element {
  const { title, body, isWide = false } = dialog;
  // The close event arrives late; by then another dialog may be open, which must stay.
  const onClose = () => shown.peek() === dialog && closeDialog();
  const onCancel = (event: Event) => {
    if (!mayLeave()) event.preventDefault();
  };
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const own = element.current;
    own?.showModal();
    own?.querySelector<HTMLElement>("[autofocus], input, textarea, select")?.focus();
    return () => own?.close();
  }, []);
  return (
    <dialog ref={element} class={isWide ? "wide" : ""} aria-labelledby="dialog-title" onCancel={onCancel} onClose={onClose}>
      <header>
        <h2 id="dialog-title">{title}</h2>
        <button type="button" class="small" aria-label="Close" onClick={() => mayLeave() && closeDialog()}>
          ×
        </button>
      </header>
      {body()}
    </dialog>
  );
}

/** Asks for confirmation before something is lost; `loses` says what. */
export function confirm({
  title,
  loses,
  act,
  onYes,
}: {
  readonly title: string;
  readonly loses: string;
  readonly act: string;
  readonly onYes: () => void;
}): void {
  openDialog({
    title,
    body: () => (
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          closeDialog();
          onYes();
        }}
      >
        <p>{loses}</p>
        <footer>
          <button type="button" onClick={closeDialog}>
            Cancel
          </button>
          <button type="submit" class="danger" autofocus>
            {act}
          </button>
        </footer>
      </form>
    ),
  });
}
