// This file allocates a checkpoint's file while its sandbox still runs, and passes a restore's earlier pages files to pgalloc.
package boot

import (
	"os"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/state"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// takeEarlierPages passes files begin to end of the restore, the checkpoint's earlier pages files, to pgalloc.
func (o *RestoreOpts) takeEarlierPages(begin, end int) error {
	var files []*os.File
	for i := begin; i < end; i++ {
		file, err := o.ReleaseFD(i)
		if err != nil {
			return err
		}
		files = append(files, file.ReleaseToFile("pages"))
	}
	pgalloc.OfferEarlierPages(files)
	return nil
}

// maxPrepareBytes is small enough that the host keeps the zeros in its page cache until they are overwritten. More zeros would be
// written back to the disk first, which blocks every writer.
const maxPrepareBytes = 512 << 20

// preparePages allocates the space of the pages file on the host before the sandbox stops for the checkpoint.
func (l *Loader) preparePages(o *control.SaveOpts, saveOpts *state.SaveOpts) {
	if w, ok := saveOpts.PagesFile.(*stateio.FDWriter); ok && o.PreparePages && !l.k.IsPaused() {
		w.Prepare(min(l.k.MemoryFile().BytesToSave(), maxPrepareBytes))
	}
}
