import pytest

from hourhand.job_kinds.container_payload import container_faults


def faults(**payload):
    return [(fault.pointer, fault.code) for fault in container_faults(payload)]


@pytest.mark.parametrize(
    "more",
    [
        {}, {"argv": []}, {"argv": ["sh", "-c", "echo $HOME"]},
        {"env": {"A": "b c"}, "stdin": "x", "ok_exit_codes": [0, 2]},
        {"network": "bridge", "pull": "never", "workdir": "/src"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("image", ["alpine", "docker.io/library/alpine:3.20", "localhost:5000/a/b@sha256:" + "ab" * 32])
def test_a_good_payload_has_no_faults(image, more):
    assert faults(image=image, **more) == []


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, [("/image", "image-required")]),
        ({"image": 1}, [("/image", "wrong-type")]),
        ({"image": "--privileged"}, [("/image", "invalid-image")]),
        ({"image": "a b"}, [("/image", "invalid-image")]),
        ({"image": "a", "argv": "sh"}, [("/argv", "argv-must-be-list")]),
        ({"image": "a", "env": {"LD_PRELOAD": "x"}}, [("/env/LD_PRELOAD", "env-reserved")]),
        ({"image": "a", "env": {"A": "x\nPATH=/evil"}}, [("/env/A", "env-reserved")]),
        ({"image": "a", "env": {"A": "x\rb", "B\r": "c"}}, [("/env/A", "env-reserved"), ("/env/B\r", "env-reserved")]),
        ({"image": "a", "network": "host"}, [("/network", "unknown-value")]),
        ({"image": "a", "network": ["none"]}, [("/network", "unknown-value")]),
        ({"image": "a", "pull": "sometimes"}, [("/pull", "unknown-value")]),
        ({"image": "a", "workdir": "work"}, [("/workdir", "invalid-workdir")]),
        ({"image": "a", "privileged": True}, [("/privileged", "unknown-field")]),
        ({"image": "a", "volumes": ["/:/host"]}, [("/volumes", "unknown-field")]),
    ],
)  # fmt: skip
def test_every_fault_is_told_with_its_place(payload, expected):
    assert faults(**payload) == expected
