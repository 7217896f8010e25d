"""The certificate by which ranks and kernels in pods know that they speak with their gateway: self-signed, pinned by them.

It must never be written where anybody but this gateway reads its key.
"""

from __future__ import annotations

import datetime

YEARS = 10


def make(name: str) -> tuple[str, str]:
    """``(certificate, private key)`` as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"bursts of {name}"[:64])])
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)  # a pod's clock may be behind
    certificate = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(begins + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
