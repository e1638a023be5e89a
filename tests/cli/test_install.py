import pytest

from kai_py.cli.errors import CommandError
from kai_py.cli.install import command


@pytest.mark.parametrize(
    "image", ["a b", "a:b:c d", "-x", "a/", "a:", "a\nkind: Secret", "http://a/b"]
)
def test_what_is_no_name_of_an_image_is_refused(image):
    with pytest.raises(CommandError, match="is not an image name"):
        command(image=image)


@pytest.mark.parametrize(
    "image",
    ["kai-py", "kai-py:0.1.0", "host.example:5000/a/kai_py:v1-rc.1", f"a/b@sha256:{'0a' * 32}"],
)
def test_names_of_images_are_taken(image, capsys):
    command(image=image)
    assert f"image: {image}\n" in capsys.readouterr().out
