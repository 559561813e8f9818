#!/usr/bin/env python3
"""Lints the chart, renders it with several values, and checks what Kubernetes would get.

    deploy/helm/check.py --helm HELM --binaries target/debug     # kvd and kvctl, for the flags and settings they know
    deploy/helm/check.py --helm HELM --write                     # renders deploy/kubernetes/torc.yaml again

Needs PyYAML and kubernetes-validate, which has the schemas of Kubernetes.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy/helm/torc"
MANIFEST = REPOSITORY / "deploy/kubernetes/torc.yaml"
# A file for any namespace cannot bind a ClusterRole, because such a binding names a namespace.
MANIFEST_VALUES = ["zones.fromNodes=false"]
MONITORING = [f"{name}.enabled=true" for name in ("serviceMonitor", "prometheusRule", "dashboard")]
CASES = {
    "the default": [],
    "the manifest": MANIFEST_VALUES,
    "insecure": ["secure=false"],
    "Redis clients": ["resp.enabled=true", "resp.databases.1=sessions", "resp.databases.2=carts"],
    "one node": ["replicaCount=1", "replicas=1"],
    "five nodes": ["replicaCount=5"],
    "monitored": MONITORING,
    "monitored, insecure": [*MONITORING, "secure=false"],
    "placed": ["spread.zone=DoNotSchedule", "nodeSelector.disk=ssd", "persistence.storageClass=fast",
               "tolerations[0].operator=Exists", "networkPolicy.enabled=false"],
}
# The oldest release that the chart allows, one in between, and the newest one with a schema.
RELEASES = ["1.28", "1.32", None]


def command(*words):
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def render(helm, values):
    sets = [word for value in values for word in ("--set", value)]
    return command(helm, "template", "torc", CHART, "--namespace", "shop", *sets)


def known_to(program, *subcommand):
    text = command(program, *subcommand, "--help")
    return set(re.findall(r"\[env: ([A-Z_0-9]+)=", text)), set(re.findall(r"--[a-z0-9-]+", text))


def one(objects, kind):
    found = [it for it in objects if it["kind"] == kind]
    assert len(found) == 1, f"{len(found)} of {kind}"
    return found[0]


def is_schema_known(item):
    return not item["apiVersion"].startswith("monitoring.coreos.com/")


def check(case, objects, known):
    nodes = one(objects, "StatefulSet")["spec"]
    pod = nodes["template"]
    labels = pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    secure = "secure=false" not in case

    selects = lambda selector: selector.items() <= labels.items()
    assert selects(nodes["selector"]["matchLabels"])
    assert selects(one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
    for spread in pod["spec"]["topologySpreadConstraints"]:
        assert selects(spread["labelSelector"]["matchLabels"])
    services = {it["metadata"]["name"]: it["spec"] for it in objects if it["kind"] == "Service"}
    assert services[nodes["serviceName"]]["clusterIP"] == "None"
    for service in services.values():
        assert selects(service["selector"])
        for port in service["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    policies = [it["spec"] for it in objects if it["kind"] == "NetworkPolicy"]
    for policy in policies:
        assert selects(policy["podSelector"]["matchLabels"])
        assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports)

    for probe, path in ("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"):
        asked = container[probe]["httpGet"]
        assert asked["path"] == path and asked["port"] in ports
        assert asked["scheme"] == ("HTTPS" if secure else "HTTP")

    env = {it["name"]: it.get("value") for it in container["env"]}
    for setting, port in ("TORC_GRPC_ADDR", "grpc"), ("TORC_HTTP_ADDR", "http"), ("TORC_RESP_ADDR", "resp"):
        assert env.get(setting) == (f"0.0.0.0:{ports[port]}" if port in ports else None)
    assert ("resp" in ports) == ("resp.enabled=true" in case)
    assert (env.get("TORC_SECURE"), env.get("TORC_INSECURE")) == (("true", None) if secure else (None, "true"))
    if "resp" in ports:
        assert env["TORC_RESP_DB"] == "1=sessions,2=carts"

    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    # All mounts have a volume, and only the data directory is writable.
    volumes = {it["name"] for it in pod["spec"].get("volumes", [])}
    volumes |= {it["metadata"]["name"] for it in nodes["volumeClaimTemplates"]}
    assert {it["name"] for it in container["volumeMounts"]} == volumes
    assert [it["mountPath"] for it in container["volumeMounts"] if not it.get("readOnly")] == [env["TORC_DATA_DIR"]]
    assert nodes["persistentVolumeClaimRetentionPolicy"] == {"whenScaled": "Retain", "whenDeleted": "Retain"}

    # The request that `kvctl pod` makes, and the rights for it.
    account = one(objects, "ServiceAccount")["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account
    (rule,) = one(objects, "Role")["rules"]
    name = one(objects, "StatefulSet")["metadata"]["name"]
    assert rule == {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "resourceNames": [name], "verbs": ["get"]}
    binding = one(objects, "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert binding["roleRef"]["name"] == one(objects, "Role")["metadata"]["name"]
    assert ("NODE_NAME" in env) == any(it["kind"] == "ClusterRole" for it in objects)

    words = container["command"] + container["args"]
    assert words[:2] == ["kvctl", "pod"] and words[words.index("--"):] == ["--", "kvd", "serve"]
    if "replicaCount=5" in case:
        assert nodes["replicas"] == 5 and "--founders=3" in words
    if "replicaCount=1" in case:
        assert nodes["replicas"] == 1 and "--founders=1" in words
    if known:
        (settings, _), (variables, flags) = known["kvd serve"], known["kvctl pod"]
        asked = {word.split("=")[0] for word in words if word.startswith("--") and word != "--"}
        assert asked <= flags, asked - flags
        unknown = set(env) - settings - variables
        assert not unknown, f"neither kvd nor kvctl knows {unknown}"

    if "serviceMonitor.enabled=true" in case:
        monitor = one(objects, "ServiceMonitor")["spec"]
        headless = next(it for it in objects if it["kind"] == "Service" and it["spec"].get("clusterIP") == "None")
        assert monitor["selector"]["matchLabels"].items() <= headless["metadata"]["labels"].items()
        assert monitor["endpoints"][0]["port"] in {port["name"] for port in headless["spec"]["ports"]}
        alerts = yaml.safe_load((REPOSITORY / "deploy/prometheus/alerts.yml").read_text())
        assert one(objects, "PrometheusRule")["spec"] == alerts
        dashboard = (REPOSITORY / "deploy/grafana/torc.json").read_text()
        assert one(objects, "ConfigMap")["data"]["torc.json"].strip() == dashboard.strip()


def manifest(helm):
    """The header, which is kept, and the chart."""
    header = []
    for line in MANIFEST.read_text().splitlines(keepends=True):
        if not line.startswith("#"):
            break
        header.append(line)
    rendered = render(helm, MANIFEST_VALUES).replace("namespace: shop\n", "")
    assert "shop" not in rendered, "the manifest names a namespace"
    return "".join(header) + rendered


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--helm", required=True)
    parser.add_argument("--binaries", type=Path, help="where kvd and kvctl are; without, their flags are not checked")
    parser.add_argument("--write", action="store_true", help="write deploy/kubernetes/torc.yaml and end")
    args = parser.parse_args()
    if args.write:
        MANIFEST.write_text(manifest(args.helm))
        return
    known = {}
    if args.binaries:
        known["kvd serve"] = known_to(args.binaries / "kvd", "serve")
        known["kvctl pod"] = known_to(args.binaries / "kvctl", "pod")

    version = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version, "Chart.yaml has another version than Cargo.toml"
    count = 0
    for case, values in CASES.items():
        sets = [word for value in values for word in ("--set", value)]
        command(args.helm, "lint", "--strict", CHART, *sets)
        objects = [it for it in yaml.safe_load_all(render(args.helm, values)) if it]
        try:
            for item in filter(is_schema_known, objects):
                for release in RELEASES:
                    newest = kubernetes_validate.latest_version()
                    kubernetes_validate.validate(item, release or newest, strict=True)
            check(values, objects, known)
        except Exception as error:
            print(f"the chart with {case}: {error}", file=sys.stderr)
            raise
        count += len(objects)
    assert MANIFEST.read_text() == manifest(args.helm), f"{MANIFEST} is not the chart: run this with --write"
    print(f"helm: {len(CASES)} sets of values, {count} objects")


main()
