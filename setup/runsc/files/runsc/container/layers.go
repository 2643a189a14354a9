// The layers of a container's root: numbered files of one folder, the newest of which its sandbox writes.
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
	// mergedPrefix is of layers that the newest takes in when its sandbox is restored.
	mergedPrefix = "merged-"
)

// layersIn names those that are there, oldest first.
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

// createLayer makes the empty file above all others; it keeps its name, by which a checkpoint of it is kept.
func createLayer(dir string) (*os.File, error) {
	names, err := layersIn(dir, layerPrefix)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(path.Join(dir, fmt.Sprintf("%s%06d", layerPrefix, len(names))), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0600)
}

// sealedLayers opens those that a checkpoint lies on. Only now, since a sandbox may have been made before anyone knew which
// checkpoint it will load.
func (c *Container) sealedLayers(overlay config.Overlay2) ([]*os.File, error) {
	if c.GoferMountConfs[0].Upper != specutils.AnonOverlay {
		return nil, nil
	}
	return openSealedLayers(overlay.Medium().HostFileDir())
}

// openSealedLayers opens those below the newest, or the newest too and after it those that it takes in.
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
