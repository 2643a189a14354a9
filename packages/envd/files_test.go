package main

// Files over HTTP and RPC: contents survive both directions, owners are right, and bad requests are refused.

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func filesAt(path string) string { return "/files?path=" + url.QueryEscape(path) }

var octets = http.Header{"Content-Type": {"application/octet-stream"}}

func (e *envd) put(path, content string, header http.Header) answer {
	all := octets.Clone()
	for name, values := range header {
		all[name] = values
	}
	return e.ask("POST", filesAt(path), strings.NewReader(content), all)
}

func zipped(content string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = io.WriteString(w, content)
	_ = w.Close()
	return out.String()
}

func TestAFileComesBackAsItWasSent(t *testing.T) {
	e, dir := start(t), t.TempDir()
	path := filepath.Join(dir, "new/dir/ä file.bin")
	content := rand.Text() + strings.Repeat("\x00\xff", 300_000)
	if got := e.put(path, content, nil); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	got := e.ask("GET", filesAt(path), nil, nil)
	if got.status != 200 || string(got.body) != content || got.header.Get("Content-Length") != strconv.Itoa(len(content)) {
		t.Fatalf("%d, %d bytes, %v", got.status, len(got.body), got.header)
	}
	if !strings.HasPrefix(got.header.Get("Content-Disposition"), "inline; filename") || got.header.Get("Vary") != "Accept-Encoding" {
		t.Fatal(got.header)
	}
	if e.put(path, "short", nil); string(e.ask("GET", filesAt(path), nil, nil).body) != "short" {
		t.Fatal("an upload does not replace the whole file")
	}
	if e.put(path, "", nil); len(e.ask("GET", filesAt(path), nil, nil).body) != 0 {
		t.Fatal("an empty file is not empty")
	}
}

func TestAnUploadInPartsWritesEachToItsName(t *testing.T) {
	e, dir := start(t), t.TempDir()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, name := range []string{"one", "sub/two"} {
		part, _ := form.CreateFormFile("file", filepath.Join(dir, name))
		fmt.Fprint(part, "content of "+name)
	}
	_ = form.WriteField("other", "is skipped")
	_ = form.Close()
	got := e.ask("POST", "/files", &body, http.Header{"Content-Type": {form.FormDataContentType()}})
	var written []struct{ Path, Name, Type string }
	if err := json.Unmarshal(got.body, &written); err != nil || len(written) != 2 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if written[1].Path != filepath.Join(dir, "sub/two") || written[1].Name != "two" || written[1].Type != "file" {
		t.Fatalf("%+v", written)
	}
	if read, _ := os.ReadFile(filepath.Join(dir, "sub/two")); string(read) != "content of sub/two" {
		t.Fatalf("%q", read)
	}
}

func TestRangesConditionsAndEncodingsAreServed(t *testing.T) {
	e, dir := start(t), t.TempDir()
	path := filepath.Join(dir, "f")
	e.put(path, "0123456789", nil)
	part := e.ask("GET", filesAt(path), nil, http.Header{"Range": {"bytes=2-4"}})
	if part.status != 206 || string(part.body) != "234" || part.header.Get("Content-Range") != "bytes 2-4/10" {
		t.Fatalf("%d %q %v", part.status, part.body, part.header)
	}
	whole := e.ask("GET", filesAt(path), nil, nil)
	if again := e.ask("GET", filesAt(path), nil, http.Header{"If-None-Match": {whole.header.Get("Etag")}}); again.status != 304 {
		t.Fatal(again.status)
	}
	if again := e.ask("GET", filesAt(path), nil, http.Header{"If-Modified-Since": {whole.header.Get("Last-Modified")}}); again.status != 304 {
		t.Fatal(again.status)
	}
	for accept, want := range map[string]string{"gzip": "gzip", "identity;q=0, gzip": "gzip", "gzip;q=1, identity;q=0.5": "gzip", "gzip, deflate, br": "", "": "", "br": ""} {
		got := e.ask("GET", filesAt(path), nil, http.Header{"Accept-Encoding": {accept}})
		if got.status != 200 || got.header.Get("Content-Encoding") != want {
			t.Errorf("%q: %d %v", accept, got.status, got.header)
		}
		if want == "gzip" {
			plain, err := gzip.NewReader(bytes.NewReader(got.body))
			if err != nil {
				t.Fatal(err)
			}
			if text, _ := io.ReadAll(plain); string(text) != "0123456789" {
				t.Errorf("%q: %q", accept, text)
			}
		}
	}
	if got := e.ask("GET", filesAt(path), nil, http.Header{"Accept-Encoding": {"identity;q=0"}}); got.status != 406 {
		t.Fatal(got.status)
	}
	if got := e.put(path, zipped("plain"), http.Header{"Content-Encoding": {"gzip"}}); got.status != 200 {
		t.Fatal(got.status)
	}
	if got := e.ask("GET", filesAt(path), nil, nil); string(got.body) != "plain" {
		t.Fatalf("%q", got.body)
	}
}

func TestARefusedFileRequestSaysWhy(t *testing.T) {
	e, dir := start(t), t.TempDir()
	for _, c := range []struct {
		got    answer
		status int
		text   string
	}{
		{e.ask("GET", filesAt(dir+"/none"), nil, nil), 404, "path '" + dir + "/none' does not exist"},
		{e.ask("GET", filesAt(dir), nil, nil), 400, "is a directory"},
		{e.ask("GET", filesAt("~other/x"), nil, nil), 400, "~other"},
		{e.ask("GET", filesAt("/dev/null"), nil, nil), 400, "not a regular file"},
		{e.ask("GET", "/files?path=x&username=nosuch", nil, nil), 401, "nosuch"},
		{e.put(dir, "x", nil), 400, "directory"},
		{e.put("", "x", nil), 400, "path"},
		{e.ask("POST", filesAt(dir+"/x"), strings.NewReader("x"), http.Header{"Content-Type": {"text/plain"}}), 400, "text/plain"},
		{e.ask("GET", "/nothing/here", nil, nil), 404, "/nothing/here"},
	} {
		var body struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal(c.got.body, &body); err != nil || c.got.status != c.status || body.Code != c.status || !strings.Contains(body.Message, c.text) {
			t.Errorf("wanted %d with %q, got %d %s", c.status, c.text, c.got.status, c.got.body)
		}
	}
}

func TestMetadataIsReplacedByEveryUploadAndSharedWithProgramsInside(t *testing.T) {
	e := start(t)
	dir, err := os.MkdirTemp("/var/tmp", "envd-test") // /tmp may be a tmpfs without user attributes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "f")
	metadata := func() any {
		_, body := e.call("filesystem.Filesystem/Stat", m{"path": path}, nil)
		return dig(body, "entry", "metadata")
	}
	if got := e.put(path, "x", http.Header{"X-Metadata-Owner-Team": {"agents"}, "X-Metadata-B": {"2"}}); got.status != 200 || !strings.Contains(string(got.body), `"owner-team":"agents"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if fmt.Sprint(metadata()) != "map[b:2 owner-team:agents]" {
		t.Fatal(metadata())
	}
	if e.put(path, "x", http.Header{"X-Metadata-B": {"3"}}); fmt.Sprint(metadata()) != "map[b:3]" {
		t.Fatal(metadata())
	}
	if e.put(path, "x", nil); metadata() != nil {
		t.Fatal(metadata())
	}
	// A program inside has set one attribute, and an earlier version of envd the others.
	if err := errors.Join(unix.Setxattr(path, "user.e2b.stage", []byte("done"), 0), unix.Setxattr(path, "user.svc.old", []byte("1"), 0), unix.Setxattr(path, "user.svc.stage", []byte("0"), 0)); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(metadata()) != "map[old:1 stage:done]" {
		t.Fatal(metadata())
	}
	if e.put(path, "x", http.Header{"X-Metadata-Old": {"2"}}); fmt.Sprint(metadata()) != "map[old:2]" {
		t.Fatal(metadata())
	}
	value := make([]byte, 10)
	if n, err := unix.Getxattr(path, "user.e2b.old", value); err != nil || string(value[:n]) != "2" {
		t.Fatalf("%q, %v", value[:max(n, 0)], err)
	}
	if got := e.put(path, "x", http.Header{"X-Metadata-Long": {strings.Repeat("v", 5000)}}); got.status != 400 {
		t.Fatal(got.status)
	}
}

func TestComposedFilesBecomeOne(t *testing.T) {
	e, dir := start(t), t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		e.put(filepath.Join(dir, name), name+name, nil)
	}
	request, _ := json.Marshal(m{"source_paths": []string{dir + "/a", dir + "/b", dir + "/c"}, "destination": dir + "/all/b"})
	got := e.ask("POST", "/files/compose", bytes.NewReader(request), http.Header{"Content-Type": {"application/json"}})
	if got.status != 200 || !strings.Contains(string(got.body), `"size":"6"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if read, _ := os.ReadFile(dir + "/all/b"); string(read) != "aabbcc" {
		t.Fatalf("%q", read)
	}
	if left, _ := filepath.Glob(dir + "/?"); len(left) != 0 {
		t.Fatal(left)
	}
}

func TestMemoryStaysFlatWhileALargeFileTravels(t *testing.T) {
	e, dir := start(t), t.TempDir()
	const size = 256 << 20
	got := e.ask("POST", filesAt(dir+"/large"), io.LimitReader(zeroes{}, size), octets)
	if got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	request, _ := http.Get(e.base + filesAt(dir+"/large"))
	n, _ := io.Copy(io.Discard, request.Body)
	_ = request.Body.Close()
	if n != size {
		t.Fatal(n)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	peak, _ := strconv.Atoi(strings.Fields(line)[0])
	if t.Logf("peak %d KiB", peak); peak > 40<<10 {
		t.Fatalf("a file of %d MiB took %d KiB of memory", size>>20, peak)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }
