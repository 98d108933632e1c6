// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
)

const (
	probeTimeout  = 10 * time.Second
	maxProbeReply = 64 << 10
)

// probeHealth requests url from a running plugin and copies the response to out. The probes of the
// DaemonSet run it in the pod, because the kubelet cannot connect to an address that only the pod reaches.
func probeHealth(ctx context.Context, out io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("--probe: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	// The transport ignores the environment's proxies, because the address belongs to the pod.
	reply, err := (&http.Client{Transport: &http.Transport{}}).Do(request)
	if err != nil {
		return fmt.Errorf("--probe: %w", err)
	}
	defer reply.Body.Close()
	if _, err := io.Copy(out, io.LimitReader(reply.Body, maxProbeReply)); err != nil {
		return fmt.Errorf("--probe: read the answer of %s: %w", url, err)
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("--probe: %s returned status %s: must be 200: %w", url, reply.Status, errdefs.ErrUnavailable)
	}
	return nil
}
