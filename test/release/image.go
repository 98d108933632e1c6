// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackfield/jackfield/deploy/artifact"
)

// makeImage makes the image of all architectures as an OCI layout. An SBOM refers to each architecture's image,
// and a provenance to their index.
func (r *release) makeImage(ctx context.Context) error {
	var out bytes.Buffer
	l := artifact.NewLayout(&out, r.Time)
	var images []artifact.Descriptor
	for _, arch := range r.archs {
		licenses, err := r.Licenses(ctx, r.programs(arch))
		if err != nil {
			return err
		}
		files, err := artifact.ImageFiles(r.programs(arch), licenses)
		if err != nil {
			return err
		}
		layer, err := artifact.Compress(files, r.Time)
		if err != nil {
			return err
		}
		image := l.Image(arch, r.ImageConfig(), layer)
		name := fmt.Sprintf("jackfield-%s-linux-%s.spdx.json", r.Version, arch)
		l.Refer(image, typeSBOM, name, r.files[name])
		images = append(images, image)
	}
	return r.makeLayout(l, &out, l.Index(images, r.ImageConfig().Labels), "jackfield", "jackfield-image-"+r.Version+".oci.tar")
}

// makeLayout names what a layout holds after its repository, attaches its provenance, and ends the layout.
func (r *release) makeLayout(l *artifact.Layout, out *bytes.Buffer, top artifact.Descriptor, repository, file string) error {
	name := registry + "/" + repository
	provenance, err := r.statement(newSubject(name+":"+r.Version, top.Digest))
	if err != nil {
		return err
	}
	l.Refer(top, typeProvenance, "provenance.intoto.json", provenance)
	l.Name(top, name, r.Version)
	if err := l.Close(); err != nil {
		return err
	}
	r.files[file] = out.Bytes()
	r.digests = append(r.digests, name+":"+r.Version+"@"+top.Digest)
	return nil
}
