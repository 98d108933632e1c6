// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// The stub does not warn of a runtime's version without a leading v: it finds the NRI version in the request.
func TestConfigureWithoutNRIVersion(t *testing.T) {
	for _, tc := range []struct{ runtime, version, nri, want string }{
		{"cri-o", "1.35.6", "", "v0.11.0"},
		{"cri-o", "1.31.13", api.UnknownVersion, "v0.6.1"},
		{"containerd", "1.7.24~ds1", "", "v0.6.1"},
		{"containerd", "v2.4.2", "v0.12.3", "v0.12.3"},
		{"other", "1.0.0", "", ""},
	} {
		unmarshal := func(v any) error {
			req := v.(*api.ConfigureRequest)
			req.RuntimeName, req.RuntimeVersion, req.NRIVersion = tc.runtime, tc.version, tc.nri
			return nil
		}
		got, err := addNRIVersion(t.Context(), unmarshal, nil, func(_ context.Context, unmarshal func(any) error) (any, error) {
			var req api.ConfigureRequest
			err := unmarshal(&req)
			return req.NRIVersion, err
		})
		if err != nil || got != tc.want {
			t.Errorf("%s %s with NRI %q: found %q, %v, want %q", tc.runtime, tc.version, tc.nri, got, err, tc.want)
		}
	}
}
