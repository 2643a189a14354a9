// Package files inspects, changes, moves and watches a sandbox's files with the rights of the requesting user.
package files

import (
	"encoding/json"
	"strconv"
	"time"

	"svc/envd/internal/connect"
)

const (
	typeFile      = "FILE_TYPE_FILE"
	typeDirectory = "FILE_TYPE_DIRECTORY"
	typeSymlink   = "FILE_TYPE_SYMLINK"
)

// Entry describes one file or directory.
type Entry struct {
	Name          string            `json:"name,omitempty"`
	Type          string            `json:"type,omitempty"`
	Path          string            `json:"path,omitempty"`
	Size          wireInt64         `json:"size,omitempty"`
	Mode          uint32            `json:"mode,omitempty"`
	Permissions   string            `json:"permissions,omitempty"`
	Owner         string            `json:"owner,omitempty"`
	Group         string            `json:"group,omitempty"`
	ModifiedTime  wireTime          `json:"modifiedTime"`
	SymlinkTarget *string           `json:"symlinkTarget,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// wireInt64 is a string in proto3 JSON.
type wireInt64 int64

func (n wireInt64) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(n), 10)), nil
}

// wireTime has nine digits: clients accept three to nine, while Go's own format may print one.
type wireTime time.Time

func (t wireTime) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Time(t).UTC().Format("2006-01-02T15:04:05.000000000Z"))
}

type pathRequest struct {
	Path string `json:"path,omitempty"`
}

type entryResponse struct {
	Entry *Entry `json:"entry"`
}

type moveRequest struct {
	Source      string `json:"source,omitempty"`
	Destination string `json:"destination,omitempty"`
}

type listRequest struct {
	Path  string         `json:"path,omitempty"`
	Depth connect.Uint32 `json:"depth,omitempty"`
}

type listResponse struct {
	Entries []*Entry `json:"entries,omitempty"`
}

type empty struct{}

const (
	eventCreate = "EVENT_TYPE_CREATE"
	eventWrite  = "EVENT_TYPE_WRITE"
	eventRemove = "EVENT_TYPE_REMOVE"
	eventRename = "EVENT_TYPE_RENAME"
	eventChmod  = "EVENT_TYPE_CHMOD"
)

type event struct {
	Name  string `json:"name,omitempty"`
	Type  string `json:"type,omitempty"`
	Entry *Entry `json:"entry,omitempty"`
}

// watchRequest also accepts the snake_case names that proto3 JSON allows.
type watchRequest struct {
	Path                   string `json:"path,omitempty"`
	Recursive              bool   `json:"recursive,omitempty"`
	IncludeEntry           bool   `json:"includeEntry,omitempty"`
	IncludeEntrySnake      bool   `json:"include_entry,omitempty"`
	AllowNetworkMounts     bool   `json:"allowNetworkMounts,omitempty"`
	AllowNetworkMountSnake bool   `json:"allow_network_mounts,omitempty"`
}

type watchEvent struct {
	Start      *empty `json:"start,omitempty"`
	Filesystem *event `json:"filesystem,omitempty"`
	Keepalive  *empty `json:"keepalive,omitempty"`
}

type watcherCreated struct {
	WatcherID string `json:"watcherId,omitempty"`
}

type watcherRequest struct {
	WatcherID      string `json:"watcherId,omitempty"`
	WatcherIDSnake string `json:"watcher_id,omitempty"`
}

func (r *watcherRequest) id() string {
	if r.WatcherID != "" {
		return r.WatcherID
	}
	return r.WatcherIDSnake
}

type watcherEvents struct {
	Events []event `json:"events,omitempty"`
}
