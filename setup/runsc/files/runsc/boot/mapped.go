// This file prepares a checkpoint while its sandbox still runs, and passes a restore's files on.
package boot

import (
	"os"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/state"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// takeEarlierPages hands on the files, of those that came along, that the checkpoint is kept in.
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

// maxPrepareBytes keeps what is prepared from the disk until it is overwritten: with more, the host would write it there first, and
// let every writer wait for that.
const maxPrepareBytes = 512 << 20

// preparePages has the pages file take its space on the host before the sandbox stands still for it.
func (l *Loader) preparePages(o *control.SaveOpts, saveOpts *state.SaveOpts) {
	if w, ok := saveOpts.PagesFile.(*stateio.FDWriter); ok && o.PreparePages && !l.k.IsPaused() {
		w.Prepare(min(l.k.MemoryFile().BytesToSave(), maxPrepareBytes))
	}
}
