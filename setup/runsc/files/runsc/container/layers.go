// The layers of a container's root file system: numbered files in one folder. The sandbox writes only to the newest.
package container

import (
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/specutils"
)

const (
	layerPrefix = "runsc-filestore-"
	// mergedPrefix begins the names of layers that a restore merges into the newest one.
	mergedPrefix = "merged-"
)

// layersIn returns the paths of the files in dir whose names begin with prefix, oldest first.
func layersIn(dir, prefix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("failed to list layers in %q: %v", dir, err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			names = append(names, path.Join(dir, entry.Name()))
		}
	}
	sort.Strings(names)
	return names, nil
}

// createLayer creates an empty layer above all others. It keeps its name, so that the caller can copy or link it for a checkpoint.
func createLayer(dir string) (*os.File, error) {
	names, err := layersIn(dir, layerPrefix)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(path.Join(dir, fmt.Sprintf("%s%06d", layerPrefix, len(names))), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0600)
}

// sealedLayers opens the sealed layers of a checkpoint. It is called at the restore and not earlier, since a sandbox may be created
// before its checkpoint is known.
func (c *Container) sealedLayers(overlay config.Overlay2) ([]*os.File, error) {
	if c.GoferMountConfs[0].Upper != specutils.AnonOverlay {
		return nil, nil
	}
	return openSealedLayers(overlay.Medium().HostFileDir())
}

// openSealedLayers opens all layers below the newest. If there are layers to merge, it also opens the newest and, after it, those.
func openSealedLayers(dir string) ([]*os.File, error) {
	names, err := layersIn(dir, layerPrefix)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	merged, err := layersIn(dir, mergedPrefix)
	if err != nil {
		return nil, err
	}
	if len(merged) == 0 {
		names = names[:len(names)-1]
	}
	var files []*os.File
	for _, name := range append(names, merged...) {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("failed to open a layer: %v", err)
		}
		files = append(files, file)
	}
	return files, nil
}
