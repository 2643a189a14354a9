// The pages files that a sandbox maps: those that its checkpoint is kept in and, last, that checkpoint's own. They get names beside
// its layers, by which the next checkpoint of it is kept in them, too.
package container

import (
	"fmt"
	"os"
	"path"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/specutils"
)

const (
	pagesPrefix = "runsc-pages-"
	// keptPrefix is of files in a checkpoint's folder, in their order.
	keptPrefix = "pages-"
)

// earlierPages opens those of the checkpoint in imagePath that are not its own.
func (c *Container) earlierPages(overlay config.Overlay2, imagePath string) ([]*os.File, error) {
	names, err := layersIn(imagePath, keptPrefix)
	if err != nil {
		return nil, err
	}
	if c.GoferMountConfs[0].Upper == specutils.AnonOverlay {
		if err := namePages(overlay.Medium().HostFileDir(), append(names, path.Join(imagePath, checkpointfiles.PagesFileName))); err != nil {
			log.Warningf("The next checkpoint will hold all pages: %v", err)
		}
	}
	var files []*os.File
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("failed to open a pages file: %v", err)
		}
		files = append(files, file)
	}
	return files, nil
}

// namePages names all files in dir, or none: another file system cannot.
func namePages(dir string, files []string) error {
	left, err := layersIn(dir, pagesPrefix)
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	var made []string
	for i, file := range files {
		name := path.Join(dir, fmt.Sprintf("%s%06d", pagesPrefix, i))
		if err := os.Link(file, name); err != nil {
			for _, other := range made {
				os.Remove(other)
			}
			return err
		}
		made = append(made, name)
	}
	return nil
}
