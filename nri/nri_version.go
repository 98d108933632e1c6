// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
)

// addNRIVersion is an interceptor that adds the NRI version to a Configure request without one, before the
// stub reads it. The stub infers the version itself, but recognizes runtime versions only with a leading v,
// which CRI-O's do not have, and logs a warning for all others.
func addNRIVersion(ctx context.Context, unmarshal ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	return method(ctx, func(v any) error {
		if err := unmarshal(v); err != nil {
			return err
		}
		if req, ok := v.(*api.ConfigureRequest); ok && !isNRIVersion(req.NRIVersion) {
			if inferred := inferNRIVersion(req.RuntimeName, req.RuntimeVersion); inferred != "" {
				req.NRIVersion = inferred
			}
		}
		return nil
	})
}

// isNRIVersion reports whether a reported NRI version is a version and not a placeholder.
func isNRIVersion(version string) bool {
	return version != "" && version != api.UnknownVersion && version != api.DevelVersion && version != "unknown"
}

// inferNRIVersion returns the NRI version of a runtime's release, "" for an unknown release. Distributions
// change the end of a version ("1.7.24~ds1", "2.1.9+unknown").
func inferNRIVersion(runtime, version string) string {
	release := strings.TrimPrefix(version, "v")
	if end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		release = release[:end]
	}
	inferred, err := api.InferVersionFromRuntime(runtime, "v"+release)
	if err != nil {
		return ""
	}
	return inferred
}
