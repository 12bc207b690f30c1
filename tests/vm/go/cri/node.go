package main

import (
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *client) version([]string) error {
	r, err := c.rt.Version(c.ctx, &cri.VersionRequest{})
	if err == nil {
		dump(r)
	}
	return err
}

func (c *client) status([]string) error {
	r, err := c.rt.Status(c.ctx, &cri.StatusRequest{})
	if err == nil {
		dump(r)
	}
	return err
}

func (c *client) config([]string) error {
	r, err := c.rt.RuntimeConfig(c.ctx, &cri.RuntimeConfigRequest{})
	if err == nil {
		dump(r)
	}
	return err
}

func (c *client) images([]string) error {
	r, err := c.img.ListImages(c.ctx, &cri.ListImagesRequest{})
	if err != nil {
		return err
	}
	for _, i := range r.Images {
		fmt.Println(i.Id, i.RepoTags, i.RepoDigests, i.Size, "pinned:", i.Pinned)
	}
	return nil
}

func (c *client) pods([]string) error {
	r, err := c.rt.ListPodSandbox(c.ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, p := range r.Items {
		fmt.Printf("%s %s %s/%s uid=%s attempt=%d\n", p.Id, p.State, p.Metadata.Namespace, p.Metadata.Name, p.Metadata.Uid, p.Metadata.Attempt)
	}
	return nil
}

func (c *client) containers([]string) error {
	r, err := c.rt.ListContainers(c.ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	for _, x := range r.Containers {
		fmt.Printf("%s %s pod=%s %s attempt=%d\n", x.Id, x.State, x.PodSandboxId, x.Metadata.Name, x.Metadata.Attempt)
	}
	return nil
}
