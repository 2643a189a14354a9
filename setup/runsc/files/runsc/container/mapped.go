// The pages files that a sandbox maps: those of earlier checkpoints that its checkpoint refers to and, last, the checkpoint's own.
// They are hard-linked next to the sandbox's layers, so that the next checkpoint can refer to them, too.
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
	// keptPrefix begins the names of earlier pages files in a checkpoint's folder; their numbers give the order.
	keptPrefix = "pages-"
)

// earlierPages opens the earlier pages files of the checkpoint in imagePath.
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

// namePages links all files into dir, or none: a link fails if dir is on another file system.
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
