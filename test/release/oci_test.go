// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
)

// push copies a layout, with everything that refers to it, to a registry of this test.
func push(t *testing.T, dir, what, repository string) *remote.Repository {
	t.Helper()
	server := httptest.NewServer(ggcr.New(ggcr.WithReferrersSupport(true), ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repo, err := remote.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/" + repository)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	from := openLayout(t, dir, what)
	top, err := oras.ExtendedCopy(t.Context(), from, version, repo, version, oras.DefaultExtendedCopyOptions)
	if err != nil {
		t.Fatal(err)
	}
	// As `oras copy --recursive` does, what refers to the image of an architecture is copied as well.
	if top.MediaType == ocispec.MediaTypeImageIndex {
		for _, d := range fetch[ocispec.Index](t, from, top).Manifests {
			if err := oras.ExtendedCopyGraph(t.Context(), from, repo, d, oras.DefaultExtendedCopyGraphOptions); err != nil {
				t.Fatal(err)
			}
		}
	}
	return repo
}

// referrers returns the documents that refer to a manifest, by their type.
func referrers(t *testing.T, repo *remote.Repository, d ocispec.Descriptor) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := repo.Referrers(t.Context(), d, "", func(list []ocispec.Descriptor) error {
		for _, ref := range list {
			m := fetch[ocispec.Manifest](t, repo, ref)
			if m.Subject == nil || m.Subject.Digest != d.Digest || len(m.Layers) != 1 {
				t.Errorf("the referrer of %s is %+v", d.Digest, m)
				continue
			}
			found[ref.ArtifactType] = string(blob(t, repo, m.Layers[0]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func blob(t *testing.T, from content.Fetcher, d ocispec.Descriptor) []byte {
	t.Helper()
	data, err := content.FetchAll(t.Context(), from, d)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fetch[T any](t *testing.T, from content.Fetcher, d ocispec.Descriptor) T {
	t.Helper()
	return decode[T](t, string(blob(t, from, d)))
}

// A registry gets the image of both architectures with an SBOM each, and the provenance. The programs are those
// of the archives.
func TestImageCanBePublished(t *testing.T) {
	dir := released(t)
	repo := push(t, dir, "image", "jackfield")
	top := topDescriptor(t, dir, "image")
	index := fetch[ocispec.Index](t, repo, top)
	var archs []string
	for _, d := range index.Manifests {
		archs = append(archs, d.Platform.OS+"/"+d.Platform.Architecture)
		if sbom := read(t, dir, archiveName(d.Platform.Architecture)+".spdx.json"); referrers(t, repo, d)[typeSBOM] != sbom {
			t.Errorf("the image of %s has not the SBOM of its programs", d.Platform.Architecture)
		}
		if d.Platform.Architecture != runtime.GOARCH {
			continue
		}
		m := fetch[ocispec.Manifest](t, repo, d)
		img := fetch[ocispec.Image](t, repo, m.Config)
		if img.Config.Labels[ocispec.AnnotationVersion] != version || img.Config.User != "0:0" || img.Config.Entrypoint[0] != "/usr/bin/jackfield-nri" {
			t.Errorf("the image is %+v", img)
		}
		layer := untar(t, blob(t, repo, m.Layers[0]))
		programs := filepath.Join(unpack(t, runtime.GOARCH), "bin")
		for _, name := range files(t, programs) {
			if layer["usr/bin"+name] != read(t, programs, name) {
				t.Errorf("the image's %s is not the archive's", name)
			}
		}
		if licenses := layer["usr/share/licenses/jackfield/THIRD_PARTY_LICENSES"]; licenses != read(t, filepath.Dir(programs), "THIRD_PARTY_LICENSES") {
			t.Error("the image's licences are not the archive's")
		}
	}
	if !slices.Equal(archs, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("the image is for %q", archs)
	}
	checkProvenance(t, repo, top, "ghcr.io/jackfield/jackfield:"+version)
}

// checkProvenance checks that a provenance about the manifest refers to it.
func checkProvenance(t *testing.T, repo *remote.Repository, d ocispec.Descriptor, name string) {
	t.Helper()
	s := decode[statement](t, referrers(t, repo, d)[typeProvenance])
	if len(s.Subject) != 1 || s.Subject[0].Name != name || "sha256:"+s.Subject[0].Digest["sha256"] != d.Digest.String() {
		t.Errorf("the provenance of %s is about %+v", d.Digest, s.Subject)
	}
}

func untar(t *testing.T, compressed []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(data)
	}
}

// Helm pulls the chart from a registry and renders it with the release's image.
func TestChartCanBePublished(t *testing.T) {
	dir := released(t)
	repo := push(t, dir, "chart", "charts/jackfield")
	checkProvenance(t, repo, topDescriptor(t, dir, "chart"), "ghcr.io/jackfield/charts/jackfield:"+version)
	client, err := helmregistry.NewClient(helmregistry.ClientOptPlainHTTP(), helmregistry.ClientOptWriter(io.Discard), helmregistry.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "none")))
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := client.Pull(repo.Reference.Registry + "/charts/jackfield:" + version)
	if err != nil {
		t.Fatal(err)
	}
	if string(pulled.Chart.Data) != read(t, dir, "jackfield-chart-"+version+".tgz") {
		t.Error("the chart of the registry is not the file")
	}
	chart, err := loader.LoadArchive(bytes.NewReader(pulled.Chart.Data))
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Error(err)
	}
	if pulled.Chart.Meta.Version != version || chart.Metadata.Version != version || chart.Metadata.AppVersion != version {
		t.Errorf("the chart is %+v", chart.Metadata)
	}
	for annotation, want := range map[string]string{"license": "Apache-2.0", "prerelease": "false", "images": "ghcr.io/jackfield/jackfield:" + version, "changes": "- ", "links": home} {
		if got := chart.Metadata.Annotations["artifacthub.io/"+annotation]; !strings.Contains(got, want) {
			t.Errorf("artifacthub.io/%s is %q, want %q in it", annotation, got, want)
		}
	}
	options := common.ReleaseOptions{Name: "jackfield", Namespace: "jackfield-system", Revision: 1, IsInstall: true}
	values, err := util.ToRenderValuesWithSchemaValidation(chart, map[string]any{"metrics": map[string]any{"prometheusRule": map[string]any{"enabled": true}}}, options, common.DefaultCapabilities, false)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, values)
	if err != nil {
		t.Fatal(err)
	}
	if ds := rendered["jackfield/templates/daemonset.yaml"]; !strings.Contains(ds, `image: "ghcr.io/jackfield/jackfield:`+version+`"`) {
		t.Errorf("the DaemonSet is\n%s", ds)
	}
	if metrics := rendered["jackfield/templates/metrics.yaml"]; !strings.Contains(metrics, "alert: JackfieldDown") {
		t.Errorf("the alert rules are\n%s", metrics)
	}
	checkReadme(t, untar(t, pulled.Chart.Data))
}

// checkReadme checks that the chart's page has every value and no link that works in the checkout only.
func checkReadme(t *testing.T, files map[string]string) {
	t.Helper()
	readme := files["jackfield/README.md"]
	for _, want := range []string{"helm install jackfield oci://ghcr.io/jackfield/charts/jackfield --version " + version, "\nEach value with its default:\n", "- `image.repository` (`ghcr.io/jackfield/jackfield`): name of the image\n"} {
		if !strings.Contains(readme, want) {
			t.Errorf("the README does not have %q", want)
		}
	}
	for _, key := range regexp.MustCompile(`(?m)^[a-zA-Z]+:`).FindAllString(files["jackfield/values.yaml"], -1) {
		name := strings.TrimSuffix(key, ":")
		if !strings.Contains(readme, "`"+name) {
			t.Errorf("the README does not have the value %s", name)
		}
	}
	if strings.Contains(readme, "](../") || strings.Contains(readme, "localhost/") || files["jackfield/LICENSE"] == "" {
		t.Errorf("the README is\n%s", readme)
	}
}

// The SBOM is valid SPDX, and lists what Go reports about each program.
func TestSBOMListsModules(t *testing.T) {
	dir := released(t)
	for _, arch := range []string{"amd64", "arm64"} {
		doc, err := json.Read(strings.NewReader(read(t, dir, archiveName(arch)+".spdx.json")))
		if err != nil {
			t.Fatal(err)
		}
		if err := spdxlib.ValidateDocument(doc); err != nil {
			t.Error(err)
		}
		names := map[string]string{}
		for _, p := range doc.Packages {
			names[string(p.PackageSPDXIdentifier)] = p.PackageName + " " + p.PackageVersion
		}
		linked := map[string][]string{}
		for _, r := range doc.Relationships {
			if r.Relationship == "DEPENDS_ON" {
				program, _, _ := strings.Cut(names[string(r.RefA.ElementRefID)], " ")
				linked[program] = append(linked[program], names[string(r.RefB.ElementRefID)])
			}
		}
		programs := filepath.Join(unpack(t, arch), "bin")
		for _, name := range files(t, programs) {
			name = strings.TrimPrefix(name, "/")
			want := []string{"stdlib " + strings.TrimPrefix(runtime.Version(), "go")}
			for line := range strings.Lines(command(t, programs, os.Environ(), "go", "version", "-m", name)) {
				if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
					want = append(want, f[1]+" "+f[2])
				}
			}
			slices.Sort(want)
			slices.Sort(linked[name])
			if !slices.Equal(linked[name], want) || len(want) < 2 {
				t.Errorf("%s: the SBOM lists %q, and Go %q", name, linked[name], want)
			}
		}
	}
}
