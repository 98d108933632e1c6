// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/manifest"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
)

// metadataMount is where a container would find the metadata of a claim's request.
const metadataMount = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims"

// readMetadata reads the metadata files of the host if a pod uses claims.
func (x *Explainer) readMetadata() {
	if !slices.ContainsFunc(x.opts.Manifests.Pods, func(p *manifest.Pod) bool { return len(p.Spec.ResourceClaims) > 0 }) {
		return
	}
	kubelet := x.opts.Config.Kubelet
	if x.opts.SandboxID == "" {
		x.missing = "--sandbox-id of the running pod, on its node"
	} else if _, err := x.opts.Host.Stat(kubelet.PodResourcesSocket); err != nil {
		x.missing = "the kubelet's socket " + kubelet.PodResourcesSocket
		if !errdefs.IsNotFound(err) {
			x.missing += ", which cannot be read here (" + hostfs.Errno(err).Error() + ")"
		}
	}
	x.metadata, x.MetadataError = devicemetadata.Dir{Host: x.opts.Host, Path: kubelet.PluginsDir}.List()
}

// explainClaims returns an item for each claim that a container uses. The engine finds claims by the container's
// mounts of device metadata, which no manifest has. For a pod that runs here the mounts are known from the
// metadata files: they are added to the request, and the engine explains the claim.
func (x *Explainer) explainClaims(p *manifest.Pod, r *engine.Request) (items []engine.Item) {
	dir := x.opts.Config.Kubelet.PluginsDir
	for _, use := range p.ClaimUses(r.Container) {
		name := strings.TrimSuffix(use.Name+"/"+use.Request, "/")
		item := engine.Item{Kind: engine.KindClaim, Name: name, Request: "claim " + diag.Quote(name),
			From: "resources.claims of the container"}
		files, err := x.checkUse(p, use, &item)
		grant, refusal := x.engine.Policy().Network(engine.Subject(r), "")
		// The first state in which the devices of the claim cannot be checked is the outcome.
		switch {
		case err != nil:
			item.SetOutcome(engine.Failed, err)
		case refusal != nil || grant.Rule == "":
			item.SetOutcome(engine.Unmanaged, fmt.Errorf("no rule grants allocated devices to namespace %s: the container "+
				"gets what the claim's driver injects", diag.Quote(r.Namespace)))
		case x.missing == "" && len(files) > 0:
			for _, f := range files {
				r.Have.Mounts = append(r.Have.Mounts, edit.Mount{Type: "bind", Source: x.opts.Host.Path(f.Path),
					Destination: path.Join(metadataMount, f.Claim, f.Request, f.Driver+"-metadata.json")})
			}
			continue
		case x.missing == "" && x.MetadataError != nil:
			item.SetOutcome(engine.NotChecked, fmt.Errorf("not all device metadata below %s can be read: %w; make it "+
				"readable, or run explain as root", dir, x.MetadataError))
		case x.missing == "":
			item.SetOutcome(engine.Unmanaged, fmt.Errorf("no driver wrote device metadata of it below %s: the container gets "+
				"what the claim's driver injects", dir))
		default:
			item.Notes = append(item.Notes, fmt.Sprintf("rule %s grants allocated devices to the container",
				diag.Quote(grant.Rule)))
			for i := range files {
				item.Notes = append(item.Notes, fileNotes(&files[i])...)
			}
			item.SetOutcome(engine.NotChecked, fmt.Errorf("needs %s: the kubelet knows the container's devices, and their "+
				"driver describes them below %s; on that node, `jackfield status` shows them, too", x.missing, dir))
		}
		items = append(items, item)
	}
	return items
}

// checkUse checks the use of a claim by a container against the pod and the claims in the manifests. It
// adds the content of the manifests to the item's notes, and returns the metadata files of the devices.
func (x *Explainer) checkUse(p *manifest.Pod, use manifest.ClaimUse, item *engine.Item) ([]devicemetadata.File, error) {
	var names []string
	for _, have := range p.Spec.ResourceClaims {
		names = append(names, have.Name)
	}
	i := slices.Index(names, use.Name)
	if i < 0 {
		return nil, fmt.Errorf("spec.resourceClaims of the pod has no %s%s: %w", diag.Quote(use.Name),
			diag.Alternatives(use.Name, names), errdefs.ErrNotFound)
	}
	claim := &p.Spec.ResourceClaims[i]
	kind, name := claim.Object()
	if kind == "" {
		return nil, fmt.Errorf("spec.resourceClaims[%d]: must have exactly one of resourceClaimName and "+
			"resourceClaimTemplateName: %w", i, errdefs.ErrInvalidArgument)
	}
	title := kind + " " + p.Metadata.Namespace + "/" + name
	object, known := x.opts.Manifests.Claims[title]
	if !known {
		item.Notes = append(item.Notes, title+" is not in the files, so its requests are not checked")
	}
	if running := x.opts.Manifests.Claims[manifest.ResourceClaim+" "+p.Metadata.Namespace+"/"+p.ClaimName(claim)]; len(running.Devices) > 0 {
		object.Devices = running.Devices // of a claim from a template, too
	}
	var requests []string
	for _, r := range object.Requests {
		requests = append(requests, r.Name)
		if use.Request == "" || r.Name == use.Request {
			item.Notes = append(item.Notes, fmt.Sprintf("%s, request %s: device class %s", title, diag.Quote(r.Name),
				strings.Join(r.Classes(), " or ")))
		}
	}
	if known && use.Request != "" && !slices.Contains(requests, use.Request) {
		return nil, fmt.Errorf("the kubelet would start the container without the devices: %s has no request %s%s: %w",
			title, diag.Quote(use.Request), diag.Alternatives(use.Request, requests), errdefs.ErrNotFound)
	}
	for _, d := range object.Devices {
		if base, _, _ := strings.Cut(d.Request, "/"); use.Request == "" || base == use.Request {
			item.Notes = append(item.Notes, fmt.Sprintf("allocated: device %s/%s/%s", d.Driver, d.Pool, d.Device))
		}
	}
	return x.filesOf(p, claim, use.Request), nil
}

// filesOf returns the metadata files of a request of a pod's claim, of all requests for "". A manifest
// without a status does not name the claims that the API server creates from templates: their names
// begin with the name of the pod and of the claim in its spec.
func (x *Explainer) filesOf(p *manifest.Pod, claim *manifest.PodClaim, request string) (files []devicemetadata.File) {
	name := p.ClaimName(claim)
	for _, f := range x.metadata {
		isNamed := f.Claim == name
		if name == "" {
			isNamed = strings.HasPrefix(f.Claim, p.Metadata.Name+"-"+claim.Name+"-") &&
				(f.Metadata == nil || f.Metadata.PodClaim == claim.Name)
		}
		if isNamed && f.Namespace == p.Metadata.Namespace && (request == "" || f.Request == request) {
			files = append(files, f)
		}
	}
	return files
}

// fileNotes describes the content of a metadata file.
func fileNotes(f *devicemetadata.File) (notes []string) {
	if f.Err != nil {
		return []string{diag.InFile(f.Path, f.Err).Summary()}
	}
	claim, place := f.Namespace+"/"+f.Claim, devicemetadata.Device{Driver: f.Driver}
	for _, r := range f.Metadata.Requests {
		for i := range r.Devices {
			notes = append(notes, "device "+r.Devices[i].Describe(claim, r.Name)+", by "+f.Path)
		}
	}
	if len(notes) == 0 {
		notes = []string{"device " + place.Describe(claim, f.Request) + ", by " + f.Path}
	}
	return notes
}
