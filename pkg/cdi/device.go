// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"reflect"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Device is one CDI device as its spec file declares it. It belongs to the caller, who can change every part of it.
type Device struct {
	// Name is the qualified name, "vendor.com/class=name".
	Name string
	// Kind is "vendor.com/class".
	Kind string
	// File is the host path of the spec file. Devices of one file share SpecEdits, which a container gets once.
	File string
	// Index is the position in the file's list of devices, from 0.
	Index int
	// Priority is the position of the file's directory among the spec directories, from 0. The highest priority wins.
	Priority int
	// CDIVersion is the file's cdiVersion without a leading "v".
	CDIVersion string
	// Annotations belong to the device, SpecAnnotations to the file.
	Annotations     map[string]string
	SpecAnnotations map[string]string
	// SpecEdits precede the Edits of each device of the file. Neither is nil.
	SpecEdits *specs.ContainerEdits
	Edits     *specs.ContainerEdits
}

func copyEdits(e *specs.ContainerEdits) *specs.ContainerEdits {
	var out *specs.ContainerEdits
	copyValue(reflect.ValueOf(&out).Elem(), reflect.ValueOf(e))
	return out
}

// copyValue sets out to a copy of in. They share no pointer and no list.
func copyValue(out, in reflect.Value) {
	switch in.Kind() {
	case reflect.Pointer:
		if !in.IsNil() {
			out.Set(reflect.New(in.Type().Elem()))
			copyValue(out.Elem(), in.Elem())
		}
	case reflect.Slice:
		if !in.IsNil() {
			out.Set(reflect.MakeSlice(in.Type(), in.Len(), in.Len()))
			for i := range in.Len() {
				copyValue(out.Index(i), in.Index(i))
			}
		}
	case reflect.Struct:
		for i := range in.NumField() {
			copyValue(out.Field(i), in.Field(i))
		}
	default:
		out.Set(in)
	}
}
