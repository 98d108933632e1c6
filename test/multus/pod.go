// SPDX-License-Identifier: Apache-2.0

package multus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	statusAnnotation   = "k8s.v1.cni.cncf.io/network-status"
	resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"

	podResourcesSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"
	// patience bounds each call. The machine may be busy.
	patience = time.Minute
)

// podClient reads and changes one pod at the API server.
type podClient struct {
	namespace, name string
	server          string
	http            *http.Client
}

// newPodClient returns a client for the pod that CNI_ARGS names.
func newPodClient(kubeconfig, args string) (p podClient, err error) {
	for pair := range strings.SplitSeq(args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			p.namespace = value
		case "K8S_POD_NAME":
			p.name = value
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return p, err
	}
	p.server = config.Host
	if p.http, err = rest.HTTPClientFor(config); err == nil {
		p.http.Timeout = patience
	}
	return p, err
}

// call sends a request with a body, if any, and decodes the answer.
func (p *podClient) call(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, data)
	}
	return json.Unmarshal(data, into)
}

func (p *podClient) path() string { return "/api/v1/namespaces/" + p.namespace + "/pods/" + p.name }

// object is what the package reads of any object.
type object struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct{ Config string }
}

// selection is a network in a pod's annotation.
type selection struct{ namespace, name, ifName string }

// networks returns the networks in the pod's annotation, which is a list with commas.
func (p *podClient) networks(ctx context.Context) (list []selection, err error) {
	var pod object
	if err := p.call(ctx, http.MethodGet, p.path(), nil, &pod); err != nil {
		return nil, err
	}
	for item := range strings.SplitSeq(pod.Metadata.Annotations[networksAnnotation], ",") {
		if item == "" {
			continue
		}
		s := selection{namespace: p.namespace}
		s.name, s.ifName, _ = strings.Cut(strings.TrimSpace(item), "@")
		if namespace, name, ok := strings.Cut(s.name, "/"); ok {
			s.namespace, s.name = namespace, name
		}
		list = append(list, s)
	}
	return list, nil
}

// definition returns the configuration and the resource of a NetworkAttachmentDefinition.
func (p *podClient) definition(ctx context.Context, namespace, name string) (config []byte, resource string, err error) {
	var nad object
	if err := p.call(ctx, http.MethodGet, "/apis/k8s.cni.cncf.io/v1/namespaces/"+namespace+"/network-attachment-definitions/"+name, nil, &nad); err != nil {
		return nil, "", err
	}
	return []byte(nad.Spec.Config), nad.Metadata.Annotations[resourceAnnotation], nil
}

// setStatus writes the annotation network-status.
func (p *podClient) setStatus(ctx context.Context, statuses []networkStatus) error {
	text, err := json.MarshalIndent(statuses, "", "    ")
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{statusAnnotation: string(text)}}})
	if err != nil {
		return err
	}
	return p.call(ctx, http.MethodPatch, p.path()+"/status", patch, &object{})
}

// allocatedDevices returns the sorted IDs of the devices that the kubelet allocated to a pod's containers, by
// resource.
func allocatedDevices(ctx context.Context, namespace, name string) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+podResourcesSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := podresources.NewPodResourcesListerClient(conn).Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: namespace, PodName: name})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for the devices of pod %s/%s: %w", namespace, name, err)
	}
	devices := map[string][]string{}
	for _, c := range answer.GetPodResources().GetContainers() {
		for _, d := range c.GetDevices() {
			devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
		}
	}
	for _, ids := range devices {
		slices.Sort(ids)
	}
	return devices, nil
}
