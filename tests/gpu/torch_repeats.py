"""Does torch compute the same bits again on this GPU, left alone and told to? Prints how often attention's backward
differed from the first time, for what `penstock train` calls."""
import torch
from torch.nn.functional import scaled_dot_product_attention


def gradients(query, key, value):
    query, key, value = (each.clone().requires_grad_() for each in (query, key, value))
    out = scaled_dot_product_attention(query, key, value, is_causal=True)
    out.backward(torch.ones_like(out))
    return [each.grad for each in (query, key, value)]


def main():
    for told, warn_only in ((False, False), (True, True), (True, False)):
        torch.use_deterministic_algorithms(told, warn_only=warn_only)
        for dtype in (torch.float32, torch.bfloat16):
            for tokens in (512, 4096):
                torch.manual_seed(1)
                given = [torch.randn(1, 16, tokens, 64, device="cuda", dtype=dtype) for _ in range(3)]
                first = gradients(*given)
                others = sum(not all(map(torch.equal, gradients(*given), first)) for _ in range(50))
                words = f"told {told}{' to warn' if warn_only else ''}, {dtype}, {tokens} tokens"
                print(f"{words}: {others} of 50 differ", flush=True)


main()
