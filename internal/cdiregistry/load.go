// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"path"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// loadAll loads files of a directory, on several processors. A nil file means that there is
// none of the name.
func (r *Registry) loadAll(d *openDir, names []string) []*specFile {
	files := make([]*specFile, len(names))
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < len(names); i = int(next.Add(1)) - 1 {
			files[i], _ = r.loadFile(d, names[i], false)
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(names)/16+1) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return files
}

// loadFile reads one file; nil means that there is no spec file of that name, or none that declares
// a name of SnapshotOf. The second result is what a file that can be read has.
func (r *Registry) loadFile(d *openDir, name string, withRefs bool) (*specFile, parsedSpec) {
	f := &specFile{dir: d.specDir, name: name}
	// The identity comes first, so that a change during the reading is one from it.
	now := time.Now()
	st, err := r.host.Stat(f.hostPath())
	id := identify(st, err)
	f.size, f.mtime = id.size, id.mtime
	file, fault := r.files.ReadFile(d.fd, f.hostPath())
	if file == nil || !file.IsLink && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil, parsedSpec{}
	}
	f.isLinked = file.IsLink || st.Nlink > 1
	if file.Target != "" {
		f.targetDir, f.targetID = path.Dir(file.Target), identify(file.TargetDir, nil)
	}
	if untrusted := r.files.Check("directory", d.path, &d.st); untrusted != nil {
		fault = untrusted
	}
	switch {
	case fault != nil && errdefs.IsUnavailable(fault): // for a reason that may pass
	case fault == nil && int64(len(file.Data)) != id.size: // it is being written
	case id.isTooRecent(now):
	default:
		f.id = id
	}
	if fault != nil {
		return f.refuse(fault), parsedSpec{}
	}
	text := string(file.Data)
	if r.names != nil && !mayDeclare(text, r.names) {
		return nil, parsedSpec{}
	}
	p := parseSpec(text, withRefs)
	if len(p.faults) > 0 {
		f.refuse(p.faults...)
		f.rememberNames(p.kind, p.names)
		return f, p
	}
	f.spec, f.kind = p.spec, p.kind
	return f, p
}

// rememberNames keeps what a refused file would have declared, for messages: few names, since
// the text may be anything.
func (f *specFile) rememberNames(kind string, names []string) {
	if checkKind(kind) != nil {
		return
	}
	f.kind = kind
	for _, name := range names {
		if len(f.refused) == 64 {
			break
		}
		if len(name) <= 256 && checkName(name) == nil {
			f.refused = append(f.refused, name)
		}
	}
}

// refuse records what is wrong with the file.
func (f *specFile) refuse(faults ...*Diagnostic) *specFile {
	f.spec, f.err = &specs.Spec{}, &SpecError{Path: f.hostPath(), Diagnostics: faults}
	return f
}
