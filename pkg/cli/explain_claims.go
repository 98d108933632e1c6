// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/devicemetadata"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/manifest"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// metadataMount is where a container would find the metadata of a claim's request.
const metadataMount = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims"

// readMetadata reads the metadata files of this node if a pod uses claims.
func (x *explainer) readMetadata(pods []*manifest.Pod) {
	if !slices.ContainsFunc(pods, func(p *manifest.Pod) bool { return len(p.Spec.ResourceClaims) > 0 }) {
		return
	}
	_, err := x.host.Stat(x.cfg.Kubelet.PodResourcesSocket)
	x.live = err == nil && x.sandboxID != ""
	x.missing = "--sandbox-id of the running pod, on its node"
	if err != nil && x.sandboxID != "" {
		x.missing = "the kubelet's socket " + x.cfg.Kubelet.PodResourcesSocket
	}
	if x.metadata, err = (devicemetadata.Dir{Host: x.host, Path: x.cfg.Kubelet.PluginsDir}).List(); err != nil {
		x.env.message("warning: not all device metadata is read: %v", err)
	}
}

// explainClaims returns an item for each claim that a container uses. The engine finds claims by the container's
// mounts of device metadata, which no manifest has. For a pod that runs here the mounts are known from the
// metadata files: they are added to the request, and the engine explains the claim.
func (x *explainer) explainClaims(p *manifest.Pod, r *resolve.Request) (items []resolve.Item) {
	for _, use := range p.ClaimUses(r.Container) {
		name := strings.TrimSuffix(use.Name+"/"+use.Request, "/")
		item := resolve.Item{Kind: resolve.KindClaim, Name: name, Request: "claim " + diag.Quote(name), From: "resources.claims of the container"}
		claim, err := x.checkUse(p, use, &item)
		var files []devicemetadata.File
		if err == nil {
			files = x.filesOf(p, claim, use.Request)
		}
		grant, refusal := x.engine.Policy().Network(resolve.Subject(r), "")
		switch {
		case err != nil:
			item.Decline(resolve.Failed, err)
		case refusal != nil || grant.Rule == "":
			item.Decline(resolve.Unmanaged, fmt.Errorf("no rule grants allocated devices to namespace %s: the container gets what the claim's driver injects", diag.Quote(r.Namespace)))
		case x.live && len(files) > 0:
			for _, f := range files {
				r.Have.Mounts = append(r.Have.Mounts, edits.Mount{Type: "bind", Source: x.host.Path(f.Path),
					Destination: path.Join(metadataMount, f.Claim, f.Request, f.Driver+"-metadata.json")})
			}
			continue
		case x.live:
			item.Decline(resolve.Unmanaged, fmt.Errorf("no driver wrote device metadata of it below %s: the container gets what the claim's driver injects", x.cfg.Kubelet.PluginsDir))
		default:
			item.Notes = append(item.Notes, fmt.Sprintf("rule %s grants allocated devices to the container", diag.Quote(grant.Rule)))
			for _, f := range files {
				item.Notes = append(item.Notes, fileNotes(&f)...)
			}
			item.Decline(resolve.NotChecked, fmt.Errorf("needs %s: the kubelet knows the container's devices, and their driver describes them below %s; on that node, `jackfield status` shows them, too", x.missing, x.cfg.Kubelet.PluginsDir))
		}
		items = append(items, item)
	}
	return items
}

// checkUse checks what a container says about a claim against the pod and the claims in the files. It
// adds what the files say to the item's notes.
func (x *explainer) checkUse(p *manifest.Pod, use manifest.ClaimUse, item *resolve.Item) (*manifest.PodClaim, error) {
	i := slices.IndexFunc(p.Spec.ResourceClaims, func(have manifest.PodClaim) bool { return have.Name == use.Name })
	if i < 0 {
		var names []string
		for _, have := range p.Spec.ResourceClaims {
			names = append(names, have.Name)
		}
		return nil, fmt.Errorf("spec.resourceClaims of the pod has no %s%s: %w", diag.Quote(use.Name), diag.Alternatives(use.Name, names), errdefs.ErrNotFound)
	}
	claim := &p.Spec.ResourceClaims[i]
	kind, name := claim.Object()
	if kind == "" {
		return nil, fmt.Errorf("spec.resourceClaims[%d]: want either resourceClaimName or resourceClaimTemplateName: %w", i, errdefs.ErrInvalidArgument)
	}
	title := kind + " " + p.Metadata.Namespace + "/" + name
	object, known := x.Claim(title)
	if !known {
		item.Notes = append(item.Notes, title+" is not in the files, so its requests are not checked")
	}
	if running, _ := x.Claim(manifest.ResourceClaim + " " + p.Metadata.Namespace + "/" + p.ClaimName(claim)); len(running.Devices) > 0 {
		object.Devices = running.Devices // of a claim from a template, too
	}
	var names []string
	found := use.Request == ""
	for _, r := range object.Requests {
		names = append(names, r.Name)
		if use.Request != "" && r.Name != use.Request {
			continue
		}
		found = true
		item.Notes = append(item.Notes, fmt.Sprintf("%s, request %s: device class %s", title, diag.Quote(r.Name), strings.Join(r.Classes(), " or ")))
	}
	if known && !found {
		return nil, fmt.Errorf("the kubelet would start the container without the devices: %s has no request %s%s: %w", title, diag.Quote(use.Request), diag.Alternatives(use.Request, names), errdefs.ErrNotFound)
	}
	for _, d := range object.Devices {
		if base, _, _ := strings.Cut(d.Request, "/"); use.Request == "" || base == use.Request {
			item.Notes = append(item.Notes, fmt.Sprintf("allocated: device %s/%s/%s", d.Driver, d.Pool, d.Device))
		}
	}
	return claim, nil
}

// filesOf returns the metadata files of a request of a pod's claim, of all requests for "". A manifest
// without a status does not name the claims that the API server creates from templates: their names
// begin with those of the pod and of the claim in its spec.
func (x *explainer) filesOf(p *manifest.Pod, claim *manifest.PodClaim, request string) (files []devicemetadata.File) {
	name := p.ClaimName(claim)
	for _, f := range x.metadata {
		isNamed := f.Claim == name
		if name == "" {
			isNamed = strings.HasPrefix(f.Claim, p.Metadata.Name+"-"+claim.Name+"-") && (f.Metadata == nil || f.Metadata.PodClaim == claim.Name)
		}
		if isNamed && f.Namespace == p.Metadata.Namespace && (request == "" || f.Request == request) {
			files = append(files, f)
		}
	}
	return files
}

// fileNotes says what a metadata file of this node has.
func fileNotes(f *devicemetadata.File) (notes []string) {
	for _, device := range newClaimFiles(f) {
		if device.Valid {
			notes = append(notes, "device "+device.Claim.describe()+", by "+f.Path)
		} else {
			notes = append(notes, firstText(device.Findings))
		}
	}
	return notes
}
