// The handlers of previews on a node.
import { type previewOperations, type settlePreviews, shownPreview } from "@svc/contract/previews.ts";
import type { Handlers } from "@svc/kit/serve.ts";
import type { PreviewStore } from "./store.ts";

export type PreviewParts = {
  readonly store: PreviewStore;
  /** @throws SANDBOX_NOT_FOUND. */
  readonly mustExist: (sandboxID: string) => void;
  readonly domain: () => string;
  readonly wallMs: () => number;
};

export function previewHandlers({
  store,
  mustExist,
  domain,
  wallMs,
}: PreviewParts): Handlers<typeof previewOperations & { settlePreviews: typeof settlePreviews }> {
  return {
    createPreview({ name, sandboxID, port, replace }) {
      mustExist(sandboxID);
      const now = wallMs();
      const record = { name, sandboxID, port, createdAtMs: now, updatedAtMs: now, endedAtMs: null, isDeleted: false };
      return shownPreview(store.claim(record, replace), domain());
    },
    listPreviews: ({ sandboxID }) =>
      store
        .all()
        .filter((each) => sandboxID === undefined || each.sandboxID === sandboxID)
        .map((each) => shownPreview(each, domain())),
    getPreview: ({ name }) => shownPreview(store.get(name), domain()),
    deletePreview({ name }) {
      store.remove(name);
      return undefined;
    },
    settlePreviews({ previews, claim }) {
      store.settle(previews);
      if (claim !== undefined) store.claim(claim, false);
      return store.records();
    },
  };
}
